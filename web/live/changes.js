// SPDX-License-Identifier: Apache-2.0
//
// What a change did to the row: the weights from before stay as thin marks in the table, and one sentence names the
// largest differences. A burst of key presses is one change.
//
//     “bank”: “river” 0.71 → hidden; “sat” 0.08 → 0.21
//
// Read next: live.js.
import { styled_number, two_decimals } from "../numbers.js";
import { el, shown } from "../elements.js";
import { follow } from "./words.js";
import { scale_end } from "../row_figure.js";

/** @typedef {import("./words.js").Span} Span */

/**
 * A row as it was.
 * @typedef {object} Row
 * @property {string} text
 * @property {(Span | null)[]} spans
 * @property {string[]} labels
 * @property {boolean[]} hidden
 * @property {Float64Array} weights
 */

const most_named = 3;

/**
 * The earlier weight of each word, NaN for new words, and the earlier words that are gone.
 * @param {Row} old
 * @param {Row} row
 */
export function earlier_weights(old, row) {
  const weights = new Float64Array(row.weights.length).fill(NaN);
  const from = new Int32Array(row.weights.length).fill(-1);
  /** @type {number[]} */
  const gone = [];
  const specials = row.spans.map((span, i) => (span === null ? i : -1)).filter((i) => i >= 0);
  const old_specials = old.spans.map((span, i) => (span === null ? i : -1)).filter((i) => i >= 0);
  for (const [i, span] of old.spans.entries()) {
    const special = span === null ? specials[old_specials.length === specials.length ? old_specials.indexOf(i) : -1] : undefined;
    const at = old.text === row.text ? i : span === null ? special ?? -1 : follow(span, old.text, row.text, row.spans, false);
    if (at < 0 || from[at] >= 0) {
      gone.push(i);
    } else {
      weights[at] = old.weights[i];
      from[at] = i;
    }
  }
  return { weights, from, gone };
}

/**
 * The sentence of what changed, or "" if there is nothing to compare.
 * @param {Row | null} old
 * @param {Row} row
 * @param {number} query
 */
export function change_text(old, row, query) {
  if (old === null) return "";
  const { weights, from, gone } = earlier_weights(old, row);
  const number = (/** @type {number} */ x) => styled_number(x, two_decimals);
  const named = (/** @type {string} */ label) => `“${shown(label)}”`;
  /** @type {{size: number, text: string}[]} */
  const changes = [];
  for (const [i, before] of weights.entries()) {
    const was_hidden = from[i] >= 0 && old.hidden[from[i]];
    const [now, size] = [row.weights[i], Math.abs(row.weights[i] - (Number.isNaN(before) ? 0 : before))];
    if (row.hidden[i] && !was_hidden && from[i] >= 0) changes.push({ size: 2 + size, text: `${named(row.labels[i])} ${number(before)} → hidden` });
    else if (was_hidden && !row.hidden[i]) changes.push({ size: 2 + size, text: `${named(row.labels[i])} hidden → ${number(now)}` });
    else if (row.hidden[i] || size < 0.01) continue;
    else if (Number.isNaN(before)) changes.push({ size, text: `${named(row.labels[i])} is new: ${number(now)}` });
    else if (old.labels[from[i]] !== row.labels[i] && old.spans[from[i]]?.text !== row.spans[i]?.text) changes.push({ size: 1 + size, text: `${named(old.labels[from[i]])} ${number(before)} → ${named(row.labels[i])} ${number(now)}` });
    else changes.push({ size, text: `${named(row.labels[i])} ${number(before)} → ${number(now)}` });
  }
  for (const i of gone) if (!old.hidden[i] && old.weights[i] >= 0.01) changes.push({ size: old.weights[i], text: `${named(old.labels[i])} ${number(old.weights[i])} → gone` });
  changes.sort((x, y) => y.size - x.size);
  if (changes.length === 0) return `${named(row.labels[query])}: no weight changed by 0.01 or more.`;
  return `${named(row.labels[query])}: ${changes.slice(0, most_named).map((one) => one.text).join("; ")}.`;
}

/**
 * Marks the earlier weights in the row's table.
 * @param {Row | null} old
 * @param {Row} row
 */
export function mark_earlier(old, row) {
  const earlier = old ? earlier_weights(old, row).weights : null;
  const end = scale_end(Math.max(...row.weights));
  for (const cell of document.querySelectorAll(".row-table tbody tr:not(.expand) > .bar")) {
    const id = cell.parentElement?.querySelector("[data-cell]");
    const key = id instanceof HTMLElement ? Number(id.dataset.cell?.split(" ")[1]) : NaN;
    for (const mark of cell.querySelectorAll(".earlier")) mark.remove();
    const was = earlier?.[key] ?? NaN;
    if (Number.isNaN(was) || cell.classList.contains("not-yet") || cell.classList.contains("covered")) continue;
    const mark = el("i", { class: "earlier", "data-own": true, title: `before: ${styled_number(was, two_decimals)}` });
    mark.style.setProperty("--at", String(Math.min(1, was / end)));
    cell.append(mark);
  }
}
