// SPDX-License-Identifier: Apache-2.0
//
// The given numbers of a lesson or of own matrices as tables, and what can be done with a matrix: save it, and rename or
// remove an own one.
//
// Read next: numbers_view.js, cells.js.
import { style_for } from "../numbers.js";
import { el, shown } from "../elements.js";
import { matrix_table } from "../steps_figure.js";
import { generators_of, matrix_names, numbers_of, seed, seeds_of, shape_of } from "./inputs.js";

/** @typedef {import("../explanation.js").Explanation} Explanation */

const most_heads_given = 4;

/** Buttons that save something in each format, behind one button. @param {string} what for data-save @param {string} label */
export function save_buttons(what, label) {
  const choice = el("span", { class: "formats", hidden: true }, ...["csv", "npy", "json"].map((format) =>
    el("button", { "data-save": `${format} ${what}`, "aria-label": `save ${label} as ${format.toUpperCase()}` }, format)));
  const button = el("button", { class: "save", "data-focus": `save ${what}`, "aria-expanded": "false", "aria-label": `save ${label}`, click: () => {
    choice.hidden = !choice.hidden;
    button.setAttribute("aria-expanded", String(!choice.hidden));
  } }, "save");
  return el("span", { class: "saving" }, button, choice);
}

/**
 * @param {any} input
 * @param {any} state
 * @param {{is_own: boolean, rename: (name: string, to: string) => void, remove: (name: string) => void, transpose: (name: string) => void}} actions
 */
export function given_tables(input, state, actions) {
  const by_columns = input.layout === "columns";
  const e = /** @type {Explanation} */ (/** @type {any} */ ({ tokens: input.tokens ?? [], focus: null, by_columns }));
  const seeds = Float64Array.from(seeds_of(input));
  const drawn = generators_of(input).map((steps) => steps.map((i) => input.steps[i].result).join(", "));
  const plain = { name: "", extent: "" };
  const table_of_seeds = () => matrix_table({ e, matrix: { heads: 1, rows: 1, columns: seeds.length, has_heads: false, numbers: seeds, hidden: null, kept_rows: null, kept_columns: null },
    style: { digits: 0, scientific: false }, row_axis: { ...plain, count: 1, labels: [seed] }, column_axis: { ...plain, count: seeds.length, labels: drawn }, title: "", head: 0, step: null, state, exact: [], given: { name: seed, place: "given" } }, () => undefined).element;
  return el("div", { class: "given-matrices" }, seeds.length === 0 ? null : el("figure", { class: "given-matrix" }, el("figcaption", {}, "drawn at random from"), table_of_seeds()), ...matrix_names(input).map((name) => {
    const { heads, rows, columns, has_heads } = shape_of(input[name]);
    const numbers = Float64Array.from(numbers_of(input[name]));
    const matrix = { heads, rows, columns, has_heads, numbers, hidden: null, kept_rows: null, kept_columns: null };
    const style = style_for(numbers);
    const tokens = /^(X|Q|K|V)$/.test(name) ? (name === "K" || name === "V" ? input.key_tokens ?? input.tokens : input.tokens) : undefined;
    /** @param {boolean} of_tokens @param {number} count */
    const axis = (of_tokens, count) => ({ name: of_tokens && tokens?.length === count ? "token" : "", extent: "", count, labels: of_tokens && tokens?.length === count ? tokens : undefined });
    const tables = Array.from({ length: Math.min(heads, most_heads_given) }, (_, head) => matrix_table({ e, matrix, style, row_axis: axis(!by_columns, rows), column_axis: axis(by_columns, columns),
      title: has_heads ? `head ${head}` : "", head, step: null, state, exact: [], given: { name, place: "given" } }, () => undefined).element);
    const title = actions.is_own ? el("input", { type: "text", class: "matrix-name", list: "matrix-names", "data-focus": `name ${name}`, "aria-label": `name of ${shown(name)}`, value: name, maxlength: 64, size: Math.max(name.length, 3),
      autocomplete: "off", spellcheck: "false", change: (/** @type {Event} */ event) => actions.rename(name, /** @type {HTMLInputElement} */ (event.target).value.trim()) }) : el("i", {}, shown(name));
    return el("figure", { class: "given-matrix" }, el("figcaption", {}, title, " ", el("span", { class: "shape" }, `${has_heads ? `${heads} × ` : ""}${rows} × ${columns}`), " ", save_buttons(`matrix ${name}`, shown(name)),
      ...(actions.is_own ? [el("button", { "data-focus": `transpose ${name}`, "aria-label": `transpose ${shown(name)}`, click: () => actions.transpose(name) }, "transpose"), " ",
        el("button", { "data-focus": `remove ${name}`, "aria-label": `remove ${shown(name)}`, click: () => actions.remove(name) }, "remove")] : [])), ...tables,
      heads > most_heads_given ? el("p", { class: "caption" }, `${most_heads_given} of ${heads} heads.`) : null);
  }));
}
