// SPDX-License-Identifier: Apache-2.0
//
// The sentence in large type: the query underlined, an arc to each word as thick as its weight, the number below. Any
// word can become the query. Every line of words has space for arcs above it, so that no arc crosses a word; arcs to
// another line go around by the margin.
//
//      ╭──────────╮              within a line: arcs above it
//    he  sat     bank
//    ╭─────────────╯             to another line: up, along the space above the words, down the margin, and in again
//    ╰───────╮
//    of the river
//
// Read next: sentence.js.
import { styled_number } from "./numbers.js";
import { el, shown, svg, word } from "./elements.js";
import { weight_column } from "./attention.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

export const most_large = 24;
export const most_with_arcs = 64;
const most_arcs_of_many = 12;

/**
 * @param {Attention} a
 * @param {Float64Array} weights
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function sentence_figure(a, weights, state, set) {
  const reached = !state.covered;
  const many = weights.length > most_large;
  const has_arcs = weights.length <= most_with_arcs;
  const line = el("div", { class: `words ${many ? "many" : ""} ${has_arcs ? "has-arcs" : ""}`, role: "group", "aria-label": "choose the query" });
  for (let i = 0; i < a.num_keys; ++i) {
    const special = a.special?.[i] ?? false;
    if (special && state.no_special) continue;
    const bar = el("span", { class: "under", "aria-hidden": "true" });
    bar.style.setProperty("--share", String(reached ? weights[i] : 0));
    const later = a.later?.(state.query, i) ?? false;
    const hidden = !later && a.hidden(state.head, state.query, i);
    line.append(el("button", { "data-focus": `word ${i}`, class: `${special ? "special" : ""} ${i === state.query ? "chosen" : ""}`.trim() || null,
      "aria-pressed": String(i === state.query), "data-word": i, click: () => set({ query: i, open: "" }) },
    numbered_word(a.key_labels[i], i === state.query ? "query" : ""), bar,
    el("span", { class: "share" }, !reached || later || (many && !hidden && weights[i] < 0.005) ? "" : hidden ? "hidden" : styled_number(weights[i], weight_column(a).style))));
  }
  const lines = svg("svg", { class: "lines", "aria-hidden": "true" });
  line.append(lines);
  const figure = el("div", { class: "sentence-figure" }, line);
  if (reached && has_arcs) requestAnimationFrame(() => draw_arcs(line, lines, weights, state.query));
  const marks = special_switch(a, weights, state, set);
  if (marks) figure.append(marks);
  return figure;
}

/**
 * Hides or shows special tokens, and says how much weight the hidden ones receive. Null if there are none.
 * @param {Attention} a
 * @param {Float64Array} weights
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function special_switch(a, weights, state, set) {
  if (!a.special?.some(Boolean)) return null;
  const taken = weights.reduce((sum, w, i) => sum + (a.special?.[i] ? w : 0), 0);
  return el("p", { class: "marks-switch" },
    el("button", { "data-focus": "special", "aria-pressed": String(state.no_special), click: (/** @type {any} */ event) => set({ no_special: event.currentTarget.ariaPressed !== "true" }) },
      state.no_special ? "show special tokens" : "hide special tokens"),
    state.no_special && !state.covered ? ` ${a.key_labels.filter((_, i) => a.special?.[i]).map(shown).join(" and ")} receive ${styled_number(taken, weight_column(a).style)}` : null);
}

/**
 * A word with its occurrence, "can#1", in small type.
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

/** @typedef {{anchors: Map<number, Anchor>, lines: {top: number, bottom: number}[], width: number, height: number, em: number}} Places of words and of their lines */

/** @typedef {{x: number, top: number, line: number}} Anchor where an arc ends: the middle of a word's upper edge */

/**
 * Adds the extent of a word to the last line, or to a new one.
 * @param {{top: number, bottom: number}[]} lines
 * @param {number} top
 * @param {number} bottom
 * @returns {number} the index of its line
 */
export function add_to_lines(lines, top, bottom) {
  const last = lines.at(-1);
  if (last && top < last.bottom - 4) lines[lines.length - 1] = { top: Math.min(last.top, top), bottom: Math.max(last.bottom, bottom) };
  else lines.push({ top, bottom });
  return lines.length - 1;
}

/**
 * The positions of the words and of their lines.
 * @param {HTMLElement} words
 * @returns {Places}
 */
function anchors_of(words) {
  const box = words.getBoundingClientRect();
  /** @type {Map<number, Anchor>} */
  const anchors = new Map();
  /** @type {{top: number, bottom: number}[]} */
  const lines = [];
  for (const button of words.querySelectorAll("[data-word]")) {
    const one = button.querySelector(".word")?.getBoundingClientRect();
    if (!one || !(button instanceof HTMLElement)) continue;
    const [top, bottom] = [one.top - box.top + words.scrollTop, button.getBoundingClientRect().bottom - box.top + words.scrollTop];
    anchors.set(Number(button.dataset.word), { x: one.left + one.width / 2 - box.left, top, line: add_to_lines(lines, top, bottom) });
  }
  return { anchors, lines, width: box.width, height: words.scrollHeight, em: parseFloat(getComputedStyle(words).fontSize) };
}

/**
 * Arcs from the query's word to the others. Arcs of small weight are left out if there are many words.
 * @param {HTMLElement} words
 * @param {SVGSVGElement} picture
 * @param {Float64Array} weights
 * @param {number} query
 * @param {Places} places
 */
export function draw_arcs(words, picture, weights, query, places = anchors_of(words)) {
  const { anchors, lines, width, height, em } = places;
  const from = anchors.get(query);
  if (!from || width === 0) return;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.style.width = `${width / em}em`;
  picture.style.height = `${height / em}em`;
  words.style.setProperty("--wide", (width / em).toFixed(3));
  const wanted = [...anchors.keys()].filter((i) => i !== query && weights[i] >= 0.005).sort((i, j) => weights[j] - weights[i]);
  const drawn = weights.length > most_large ? wanted.slice(0, most_arcs_of_many) : wanted;
  for (const i of drawn.reverse()) {
    const to = anchors.get(i);
    if (!to) continue;
    const thick = Math.max(0.6, weights[i] * 12);
    const d = to.line === from.line ? arc_within(from, to, lines, thick) : arc_round(from, to, lines, thick, i < query);
    picture.append(svg("path", { d, "data-to": i, "stroke-width": thick.toFixed(2) }));
  }
}

/**
 * The height of the space above a line of words.
 * @param {{top: number, bottom: number}[]} lines
 * @param {number} line
 */
function space_above(lines, line) {
  return line === 0 ? lines[0].top : lines[line].top - lines[line - 1].bottom;
}

/**
 * Words of a line may differ in height: arcs begin above the tallest.
 * @param {Anchor} from
 * @param {Anchor} to
 * @param {{top: number, bottom: number}[]} lines
 * @param {number} thick
 */
function arc_within(from, to, lines, thick) {
  const top = lines[from.line].top - 1 - thick / 2;
  const most = space_above(lines, from.line) - 3 - thick;
  const rise = Math.max(2, Math.min(most, 35, 8 + Math.abs(to.x - from.x) * 0.11));
  const end = (/** @type {Anchor} */ one) => Math.max(top, one.top - 1 - thick / 2).toFixed(1);
  return `M ${from.x.toFixed(1)} ${end(from)} V ${top.toFixed(1)} Q ${((from.x + to.x) / 2).toFixed(1)} ${(top - 2 * rise).toFixed(1)} ${to.x.toFixed(1)} ${top.toFixed(1)} V ${end(to)}`;
}

/**
 * Up into the space above the query's line, along it to the margin, down the margin, and into the word from above.
 * @param {Anchor} from
 * @param {Anchor} to
 * @param {{top: number, bottom: number}[]} lines
 * @param {number} thick
 * @param {boolean} back
 */
function arc_round(from, to, lines, thick, back) {
  const margin = 8;
  const bend = 7;
  const lane = (/** @type {number} */ line) => lines[line].top - Math.min(space_above(lines, line), 36) * (back ? 0.62 : 0.42);
  const [start, end] = [lane(from.line), lane(to.line)];
  const down = end > start ? 1 : -1;
  const upper = (/** @type {Anchor} */ one) => one.top - 1 - thick / 2;
  const corner = (/** @type {number} */ x, /** @type {number} */ y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return `M ${corner(from.x, upper(from))} V ${(start + bend).toFixed(1)} Q ${corner(from.x, start)} ${corner(from.x - bend, start)} H ${margin + bend}` +
    ` Q ${corner(margin, start)} ${corner(margin, start + down * bend)} V ${(end - down * bend).toFixed(1)} Q ${corner(margin, end)} ${corner(margin + bend, end)}` +
    ` H ${(to.x - bend).toFixed(1)} Q ${corner(to.x, end)} ${corner(to.x, end + bend)} V ${upper(to).toFixed(1)}`;
}
