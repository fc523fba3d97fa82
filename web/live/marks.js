// SPDX-License-Identifier: Apache-2.0
//
// Which numbers differ from the lesson's own: a quiet mark in the cell, with the lesson's number as its title. Numbers
// are compared as they are printed.
//
// Read next: document.js.
import { styled_number } from "../numbers.js";
import { weight_column } from "../attention.js";
import { index_of, is_hidden, number_at } from "../explanation.js";

/** @typedef {import("../explanation.js").Explanation} Explanation */
/** @typedef {import("../attention.js").Attention} Attention */
/** @typedef {{explanation: Explanation, attentions: Attention[]}} Picture */
/** @typedef {{head: number, query: number, attention: string}} Chosen */

/**
 * The lesson's number in a cell as it would be printed, and the one shown; null if the lesson has no such cell.
 * @param {string} id of the cell
 * @param {Picture} now
 * @param {Picture} own
 * @param {Chosen} chosen
 * @returns {{was: string, is: string} | null}
 */
export function lesson_number(id, now, own, chosen) {
  const of_step = /^(?:project )?(.+) (\d+) (\d+) (\d+)$/s.exec(id);
  if (of_step) {
    const [head, row, column] = of_step.slice(2).map(Number);
    const [step, before] = [now, own].map(({ explanation }) => explanation.steps.find((one) => one.name === of_step[1]));
    if (!step || !before || index_of(before.result, head, row, column) < 0) return null;
    const text = (/** @type {import("../explanation.js").Step} */ one) => is_hidden(one.result, head, row, column) ? "hidden" : styled_number(number_at(one.result, head, row, column), step.style);
    return { was: text(before), is: text(step) };
  }
  const [a, old] = [now, own].map(({ attentions }) => attentions.find((one) => one.name === chosen.attention));
  if (!a || !old || chosen.head >= old.num_heads || chosen.query >= old.num_queries) return null;
  const of_map = /^map (\d+) (\d+)$/.exec(id);
  if (of_map) {
    const [query, key] = [Number(of_map[1]), Number(of_map[2])];
    if (query >= old.num_queries || key >= old.num_keys) return null;
    const column = weight_column(a);
    const text = (/** @type {Attention} */ of) => of.hidden(chosen.head, query, key) ? "hidden" : styled_number(weight_column(of).at(chosen.head, query, key), column.style);
    return { was: text(old), is: text(a) };
  }
  const of_row = /^row (\d+) (.+)$/s.exec(id);
  if (of_row) {
    const key = Number(of_row[1]);
    const [column, before] = [a, old].map(({ columns }) => columns.find((one) => one.name === of_row[2]));
    if (!column || !before || key >= old.num_keys) return null;
    const text = (/** @type {Attention} */ of, /** @type {import("../attention.js").Column} */ one) => of.hidden(chosen.head, chosen.query, key) ? "hidden" : styled_number(one.at(chosen.head, chosen.query, key), column.style);
    return { was: text(old, before), is: text(a, column) };
  }
  const of_mix = /^mix (\d+)$/.exec(id);
  if (!of_mix || !a.mix || !old.mix || Number(of_mix[1]) >= old.mix.width) return null;
  const { context_style } = a.mix;
  const [is, was] = [a.mix, old.mix].map((mix) => styled_number(mix.context(chosen.head, chosen.query)[Number(of_mix[1])], context_style));
  return { was, is };
}

/**
 * Marks the changed cells of a part.
 * @param {Element} part
 * @param {Picture} now
 * @param {Picture | null} own
 * @param {Chosen} chosen
 */
export function mark_changed(part, now, own, chosen) {
  for (const cell of part.querySelectorAll("td[data-cell]")) {
    const found = own && !cell.classList.contains("covered") ? lesson_number(cell.getAttribute("data-cell") ?? "", now, own, chosen) : null;
    const changed = found !== null && found.was !== found.is;
    cell.classList.toggle("changed", changed);
    if (changed && !cell.classList.contains("not-yet")) cell.setAttribute("title", `in the lesson: ${found.was}`);
  }
}
