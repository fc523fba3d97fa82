// SPDX-License-Identifier: Apache-2.0
//
// The mix of the values: each key's value as a pale strip, with the value times its weight drawn over it, and their sum,
// the query's new vector. All strips share one scale. A number of the sum expands below it.
// Read next: derivation_figure.js.
import { styled_number } from "./numbers.js";
import { el, shown, spoken, word } from "./elements.js";
import { stage_index, weight_column, weights_of } from "./attention.js";
import { range_of, strip, derivation_view } from "./derivation_figure.js";
import { number_text } from "./row_figure.js";
import { make_grid } from "./grid.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

const most_values = 12;
const most_long_values = 6;
const most_numbers = 16;

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function mix_figure(a, state, set) {
  if (a.mix === null) return null;
  const { mix } = a;
  const { head, query } = state;
  const weights = weights_of(a, head, query);
  const seen = Array.from(weights.keys()).filter((j) => !a.hidden(head, query, j) && weights[j] !== 0);
  const most = mix.width > most_numbers ? most_long_values : most_values;
  const heaviest = [...seen].sort((x, y) => weights[y] - weights[x] || x - y).slice(0, seen.length > most ? most - 1 : most);
  const keys = heaviest.sort((x, y) => x - y);
  const values = keys.map((j) => mix.value(head, j, query));
  const context = mix.context(head, query);
  const range = range_of([...values, context]);
  const { covered } = state;
  const width = Math.min(500, Math.max(220, mix.width * 62));
  const weight_style = weight_column(a).style;
  const name = a.query_labels[query];

  const body = el("tbody");
  for (const [n, j] of keys.entries()) {
    const part = values[n].map((x) => x * weights[j]);
    const numbers = [...values[n]].slice(0, 12).map((x) => styled_number(x, mix.value_style)).join(", ");
    body.append(el("tr", {}, el("th", { scope: "row" }, word(a.key_labels[j], "key")),
      el("td", { class: "times" }, number_text(weights[j], weight_style), " ×"),
      el("td", { class: "strip-cell" }, strip(part, { width, height: 34, range, elements: most_numbers, kind: "value", ghost: values[n],
        label: `value of ${shown(a.key_labels[j])}: ${numbers}${mix.width > 12 ? " …" : ""}` }))));
  }
  if (keys.length < seen.length) {
    const left = seen.reduce((sum, j) => sum + weights[j], 0) - keys.reduce((sum, j) => sum + weights[j], 0);
    body.append(el("tr", { class: "others" }, el("th", { scope: "row" }, `${seen.length - keys.length} others`),
      el("td", { class: "times" }, number_text(Math.max(0, left), weight_style)), el("td", {})));
  }
  const table = el("table", { class: `mix ${state.step === stage_index.mix ? "fallen" : ""}`, "aria-label": `the values mixed for ${shown(name)}` }, body,
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, word(name, "query")), el("td", { class: "times symbol" }, shown(mix.context_symbol)),
      el("td", { class: `strip-cell sum ${covered ? "covered" : ""}` }, strip(covered ? [] : context, { width, height: 44, range, elements: most_numbers, kind: "context",
        label: `${shown(mix.context_symbol)} of ${shown(name)}` })))));

  const figure = el("div", { class: "mix-figure" }, table);
  if (mix.width <= most_numbers) {
    const numbers = el("table", { class: `vector ${covered ? "covered" : ""}`.trim(), role: "grid", "aria-label": `${shown(mix.context_symbol)} of ${shown(name)}` });
    const lines = el("tbody");
    // Numbers that do not fit in a line continue below.
    const most_in_line = window.innerWidth < 544 ? 4 : 8;
    for (let from = 0; from < mix.width; from += most_in_line) {
      const line = el("tr", {}, el("th", { scope: "row" }, from === 0 ? el("span", { class: "symbol" }, shown(mix.context_symbol)) : spoken(`from ${from} on`)));
      for (let d = from; d < Math.min(mix.width, from + most_in_line); ++d) {
        const id = `mix ${d}`;
        line.append(el("td", { "data-cell": id, "data-focus": id, "aria-expanded": mix.expand && !covered ? String(state.open === id) : null }, number_text(context[d], mix.context_style)));
      }
      lines.append(line);
    }
    numbers.append(lines);
    make_grid(numbers, (id, is_open) => set({ open: is_open ? "" : id }));
    figure.append(el("div", { class: "scroll" }, numbers));
    const [figure_name, dimension] = state.open.split(" ");
    const work = !covered && figure_name === "mix" ? mix.expand?.(head, query, Number(dimension)) : null;
    if (work) figure.append(el("div", { class: "expand" }, derivation_view(work, mix.context_style)));
  } else {
    if (!covered) figure.append(spoken(`${mix.width} elements: ${[...context].map((x) => styled_number(x, mix.context_style)).join(", ")}`));
  }
  return figure;
}
