// SPDX-License-Identifier: Apache-2.0
//
// The sentence, set large: the query underlined, a line to each word as thick as its weight, the number beneath. Any
// word can become the query. Where there is no room for lines, bars under the words stand for them.
// Read next: sentence.js.
import { styled_number } from "./numbers.js";
import { el, shown, svg, word } from "./elements.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

const most_with_lines = 24;

/**
 * @param {Attention} a
 * @param {Float64Array} weights
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function sentence_figure(a, weights, state, set) {
  const reached = state.step >= 2 && !(state.covered && state.step === 2);
  const many = weights.length > most_with_lines;
  const line = el("div", { class: `words ${many ? "many" : ""}`, role: "group", "aria-label": "choose the query" });
  for (let i = 0; i < a.num_keys; ++i) {
    const special = a.special?.[i] ?? false;
    if (special && state.no_special) continue;
    const bar = el("span", { class: "under", "aria-hidden": "true" });
    bar.style.setProperty("--share", String(reached ? weights[i] : 0));
    const hidden = a.hidden(state.head, state.query, i);
    line.append(el("button", { type: "button", "data-focus": `word ${i}`, class: `${special ? "special" : ""} ${i === state.query ? "chosen" : ""}`.trim() || null,
      "aria-pressed": String(i === state.query), "data-word": i, click: () => set({ query: i, open: "" }) },
    numbered_word(a.key_labels[i], i === state.query ? "query" : ""), bar,
    el("span", { class: "share" }, !reached || (many && !hidden && weights[i] < 0.005) ? "" : hidden ? "hidden" : styled_number(weights[i], a.columns[a.columns.length - 1].style))));
  }
  const lines = svg("svg", { class: "lines", "aria-hidden": "true" });
  const figure = el("div", { class: "sentence-figure" }, lines, line);
  if (reached && weights.length <= most_with_lines) requestAnimationFrame(() => draw_lines(figure, lines, weights, state.query));
  if (a.special?.some(Boolean)) {
    const taken = weights.reduce((sum, w, i) => sum + (a.special?.[i] ? w : 0), 0);
    figure.append(el("p", { class: "marks-switch" },
      el("button", { type: "button", "data-focus": "special", "aria-pressed": String(state.no_special), click: () => set({ no_special: !state.no_special }) },
        state.no_special ? "show special tokens" : "hide special tokens"),
      state.no_special ? ` ${a.key_labels.filter((_, i) => a.special?.[i]).map(shown).join(" and ")} receive ${styled_number(taken, a.columns[a.columns.length - 1].style)}` : null));
  }
  return figure;
}

/**
 * A word with its occurrence, "can#1", set small.
 * @param {string} label
 * @param {string} kind
 */
function numbered_word(label, kind) {
  const parts = /^(.+)(#\d+)([†‡]?)$/s.exec(label);
  if (!parts) return word(label, kind);
  const whole = word(parts[1], kind);
  whole.append(el("small", {}, parts[2]), parts[3]);
  return whole;
}

/**
 * Arcs from the top of the query's word to the others'.
 * @param {HTMLElement} figure
 * @param {SVGSVGElement} lines
 * @param {Float64Array} weights
 * @param {number} query
 */
function draw_lines(figure, lines, weights, query) {
  const box = figure.getBoundingClientRect();
  if (box.width === 0) return;
  lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const top = new Map();
  for (const button of figure.querySelectorAll("[data-word]")) {
    const one = button.querySelector(".word")?.getBoundingClientRect();
    if (one && button instanceof HTMLElement) top.set(Number(button.dataset.word), [one.left + one.width / 2 - box.left, one.top - box.top]);
  }
  const from = top.get(query);
  if (!from) return;
  for (const [i, to] of top) {
    if (i === query || weights[i] < 0.005) continue;
    const height = Math.min(from[1], to[1]) - Math.min(70, 16 + Math.abs(to[0] - from[0]) * 0.22);
    lines.append(svg("path", { d: `M ${from[0]} ${from[1] - 2} Q ${(from[0] + to[0]) / 2} ${height} ${to[0]} ${to[1] - 2}`, "stroke-width": Math.max(0.6, weights[i] * 12).toFixed(2) }));
  }
}
