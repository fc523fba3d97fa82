// SPDX-License-Identifier: Apache-2.0
//
// The first step of a sentence's row: the vector x of the query's word times W_query is its query q; the vector of the
// key attended to most, times W_key and W_value, is its key k and its value v.
//
//     x of bank    384 bars
//     q            32 cells, one bar each; a cell expands into its largest products
//     x of river   384 bars
//     k, v         32 cells each
//
// Read next: sentence.js, src/explain/sentence/sentence_html.cpp.
import { printed_units, styled_number, two_decimals, units_text } from "./numbers.js";
import { el, shown, word } from "./elements.js";
import { add_term } from "./expand.js";
import { products_view, range_of, strip } from "./derivation_figure.js";
import { make_grid } from "./grid.js";
import { contained } from "./row_figure.js";
import { key_compared } from "./evidence_figure.js";

/** @typedef {import("./sentence.js").Sentence} Sentence */
/** @typedef {import("./sentence.js").Projected} Projected */
/** @typedef {import("./state.js").State} State */

const bar_height = 40;

/** One element as a bar above or below the line, which is at `zero`. @param {number} x @param {number} zero @param {number} unit */
function one_bar(x, zero, unit) {
  const bar = el("i", { class: `one-bar ${x < 0 ? "below" : "above"}` });
  const height = Math.max(1, Math.abs(x) * unit);
  bar.style.top = `${(x < 0 ? zero : zero - height).toFixed(1)}px`;
  bar.style.height = `${height.toFixed(1)}px`;
  return bar;
}

/** @param {number} x */
function summand(x) {
  return x < 0 ? `(${styled_number(x, two_decimals)})` : styled_number(x, two_decimals);
}

/**
 * One element of q, k or v: its largest products, the sum of the others, and the bias.
 * @param {Sentence} s
 * @param {Projected} one
 * @param {number} d
 */
function number_view(s, one, d) {
  const x = one.numbers[d];
  const view = el("div", { class: "work" });
  const symbol = `${one.symbol}[${d}]`;
  const from = one.from?.[d];
  if (!from) {
    const turned = s.rotated && one.kind !== "value";
    view.append(el("p", { class: "sum" }, `${symbol} = ${styled_number(x, two_decimals)}. ${turned ? "It is rotated by the position after the projection, so it is not a sum of products."
      : `The file has the products only for the head and the ${s.noun}s of its command.`}`));
    return view;
  }
  /** @type {import("./expand.js").CellDerivation} */
  const work = { terms: [], lines: [], result: x, kind: "products" };
  for (const [i, factor, parameter] of from.largest) add_term(work, `x[${i}] · ${one.parameters}[${i}, ${d}]`, [factor, parameter]);
  const named = work.terms.slice(0, 3).map((term) => term.product);
  const rest = work.terms.slice(3).reduce((sum, term) => sum + term.product, from.others);
  const parts = [...named, rest, from.bias];
  const off = parts.reduce((sum, part) => sum + printed_units(part, two_decimals), 0);
  view.append(el("p", { class: "sum" }, `${symbol} = ${styled_number(x, two_decimals)} is the sum of ${s.width} products and the bias: ${named.map(summand).join(" + ")} + ` +
    `${s.width - named.length} others (${styled_number(rest, two_decimals)}) + bias (${styled_number(from.bias, two_decimals)})` +
    (off === printed_units(x, two_decimals) ? "" : `; the rounded terms sum to ${units_text(off, two_decimals)}`)),
  products_view(work, two_decimals, `the ${work.terms.length} largest of ${s.width} products as bars`));
  return view;
}

/**
 * @param {Sentence} s
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function projection_figure(s, state, set) {
  // A hidden word is compared, but the command is about another.
  const key = key_compared(s, state);
  const all = s.projected(state.head, state.query, key === s.data.chosen.target ? s.focus.key_word : key);
  const [, kind, dimension] = state.open.split(" ");
  const body = el("tbody");
  const many = s.head_size + 1;
  const known = all.some((one) => one.from !== null);
  for (const one of all) {
    const accent = one.kind === "query" ? "query" : "key";
    const name = s.labels[one.word];
    const piece = s.words[one.word].tokens.length > 1 ? ` (piece “${shown(s.data.tokens[one.token])}”)` : "";
    if (one.kind !== "value") {
      body.append(el("tr", { class: "input" }, el("th", { scope: "row" }, el("i", {}, "x"), " of ", word(name, accent), piece),
        el("td", { colspan: s.head_size }, one.x === null ? el("span", { class: "absent" }, `x is saved only for the ${s.noun}s and the layer given in the command`)
          : strip(one.x, { width: 560, height: 34, kind: accent === "query" ? "context" : "value", label: `x of ${shown(name)}, ${s.width} elements` }))));
    }
    const { low, high } = range_of([one.numbers]);
    const unit = high > low ? (bar_height - 2) / (high - low) : 0;
    const zero = 1 + high * unit;
    const line = el("tr", { class: `made ${accent}` }, el("th", { scope: "row" }, el("span", { class: "symbol" }, one.symbol), ` = x · ${one.parameters} + b`));
    line.style.setProperty("--zero", `${zero.toFixed(1)}px`);
    for (let d = 0; d < s.head_size; ++d) {
      const text = styled_number(one.numbers[d], two_decimals);
      const id = `project ${one.kind} ${d}`;
      line.append(el("td", { "data-cell": id, "data-focus": id, class: state.covered ? "covered" : null, "aria-expanded": state.covered ? null : String(state.open === id),
        "aria-label": state.covered ? "covered" : text, title: state.covered ? null : `${one.symbol}[${d}] = ${text}` }, state.covered ? null : one_bar(one.numbers[d], zero, unit)));
    }
    body.append(line);
    if (!state.covered && state.open.startsWith("project ") && kind === one.kind && Number(dimension) < s.head_size) {
      body.append(el("tr", { class: "expand" }, el("td", { colspan: many }, contained(number_view(s, one, Number(dimension))))));
    }
  }
  const table = el("table", { class: "projection", role: "grid", "aria-label": `vectors to query, key and value, ${s.head_size} elements each` }, body);
  make_grid(table, (id, is_open) => set({ open: is_open ? "" : id }));
  return el("div", {}, el("div", { class: "scroll" }, table),
    el("p", { class: "caption" }, `x: ${s.causal ? "the norm of " : ""}the vector of a ${s.noun} before layer ${Math.floor(state.head / s.heads)}. Every ${s.noun} has its own q, k and v; k and v are shown for “${shown(s.labels[all[1].word])}”. ` +
      (s.rotated ? "q and k are then rotated by their positions." : `Each of the ${s.head_size} elements of q is a sum of ${s.width} products and a bias${known ? ": choose a bar to see the largest" : ""}.`)));
}
