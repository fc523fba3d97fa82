// SPDX-License-Identifier: Apache-2.0
//
// Every step in full, in the document's order and words: its equation, its matrices, where its figures and the
// document's differ, notes and errata. Any number expands below its row.
// Read next: explanation.js, expand.js.
import { printed_units, units_text } from "./numbers.js";
import { el, formula, shown, word } from "./elements.js";
import { axis_label, is_hidden, number_at, index_of, stored_index } from "./explanation.js";
import { derivation_view } from "./derivation_figure.js";
import { contained, number_text } from "./row_figure.js";
import { scale_figure } from "./scale_figure.js";
import { make_grid } from "./grid.js";

/** @typedef {import("./explanation.js").Explanation} Explanation */
/** @typedef {import("./explanation.js").Step} Step */
/** @typedef {import("./explanation.js").Matrix} Matrix */
/** @typedef {import("./explanation.js").Axis} Axis */
/** @typedef {import("./numbers.js").NumberStyle} NumberStyle */
/** @typedef {import("./state.js").State} State */

const most_rows = 32;
const most_columns = 24;
const most_heads = 4;
const small_parameters = 12;
const most_above_expanded = 12;

/**
 * Which of `count` are shown in a table of `most`: the first and the last, and the one wanted.
 * @param {number[] | null} kept
 * @param {number} count
 * @param {number} most
 * @param {number | null} wanted
 */
export function chosen_indices(kept, count, most, wanted) {
  const all = kept ?? Array.from({ length: count }, (_, i) => i);
  if (all.length <= most) return all;
  const half = Math.floor(most / 2);
  const chosen = new Set([...all.slice(0, half), ...all.slice(-half)]);
  if (wanted !== null && all.includes(wanted)) chosen.add(wanted);
  return [...chosen].sort((x, y) => x - y);
}

/** @param {Axis} axis */
function is_of_tokens(axis) {
  return axis.name === "query" || axis.name === "key" || axis.name === "token";
}

/**
 * @typedef {object} TableRequest
 * @property {Explanation} e
 * @property {Matrix} matrix
 * @property {NumberStyle} style
 * @property {Axis} row_axis
 * @property {Axis} column_axis
 * @property {string} title
 * @property {number} head
 * @property {Step | null} step the step whose cells expand
 * @property {State} state
 * @property {string[]} exact texts shown instead of numbers
 * @property {{name: string, place: string}} [given] the name of the matrix, which may be one of the input's, and where it is shown
 * @property {string} [prefix] of the names of its cells: "project " before the step's name, or nothing
 * @property {number[]} [only_rows]
 * @property {number[]} [only_columns]
 */

/**
 * @param {TableRequest} request
 * @param {(id: string) => void} choose
 */
export function matrix_table(request, choose) {
  const { e, matrix, style, row_axis, column_axis, head, step, state } = request;
  const focus_of = (/** @type {Axis} */ axis) => is_of_tokens(axis) ? e.focus : null;
  const rows = request.only_rows ?? chosen_indices(matrix.kept_rows, matrix.rows, most_rows, focus_of(row_axis));
  const columns = request.only_columns ?? chosen_indices(matrix.kept_columns, matrix.columns, most_columns, focus_of(column_axis));
  const sums = step !== null && request.exact.length === 0 ? step.sums_to_one : "";
  const total = (/** @type {number} */ outer) => {
    let sum = 0;
    const inner = sums === "row" ? matrix.columns : matrix.rows;
    for (let i = 0; i < inner; ++i) sum += sums === "row" ? number_at(matrix, head, outer, i) : number_at(matrix, head, i, outer);
    return sum;
  };
  /** @param {Axis} axis @param {number} index */
  const label = (axis, index) => axis.labels ? word(axis_label(axis, index), axis.name === "query" || axis.name === "key" ? axis.name : "") : String(index);
  const jump = (/** @type {number[]} */ list, /** @type {number} */ n) => n > 0 && list[n] !== list[n - 1] + 1;
  const head_row = el("tr", {}, el("td"));
  for (const [n, c] of columns.entries()) {
    if (jump(columns, n)) head_row.append(el("td", { class: "gap" }, "…"));
    head_row.append(el("th", { scope: "col", class: c === focus_of(column_axis) && e.by_columns ? "in-focus" : null }, label(column_axis, c)));
  }
  if (sums === "row") head_row.append(el("th", { scope: "col", class: "sum" }, "sum"));
  const span = columns.length + 3;
  const body = el("tbody");
  /** @type {HTMLElement | null} */
  let below = null;
  for (const [n, r] of rows.entries()) {
    if (jump(rows, n)) body.append(el("tr", { class: "gap" }, el("td", { colspan: span }, "…")));
    const line = el("tr", { class: r === focus_of(row_axis) && !(e.by_columns && is_of_tokens(column_axis)) ? "in-focus" : null }, el("th", { scope: "row" }, label(row_axis, r)));
    let expand = null;
    for (const [m, c] of columns.entries()) {
      if (jump(columns, m)) line.append(el("td", { class: "gap" }));
      const hidden = is_hidden(matrix, head, r, c);
      const id = step === null ? "" : `${request.prefix ?? ""}${step.name} ${head} ${r} ${c}`;
      const differs = step?.document.get(`${head},${r},${c}`);
      const work = request.exact.length === 0 ? step?.works?.[index_of(matrix, head, r, c)] ?? null : null;
      const cell = el("td", { "data-given": request.given ? `${head} ${r} ${c} ${request.given.name}` : null, "data-place": request.given?.place, class: `${hidden ? "hatched" : ""} ${differs ? "differs" : ""}`.trim() || null, "data-cell": step === null || request.exact.length > 0 ? null : id,
        "data-focus": step === null || request.exact.length > 0 ? null : id, "aria-expanded": work ? String(state.open === id) : null });
      const exact = request.exact[index_of(matrix, head, r, c)];
      cell.append(hidden ? el("span", { class: "hidden-word" }, "hidden") : exact !== undefined ? el("span", { class: "number" }, shown(exact)) : number_text(number_at(matrix, head, r, c), style));
      if (differs) cell.append(el("small", { class: "document", title: `with the same number of digits: ${differs.ours}` }, `doc ${differs.theirs}`));
      line.append(cell);
      if (work && step && state.open === id) {
        const key = axis_label(e.by_columns ? row_axis : column_axis, e.by_columns ? r : c);
        const at = work.kind === "shares" ? work.terms.findIndex((t) => t.label.endsWith(`, ${key}`)) : -1;
        expand = el("div", {}, el("p", { class: "what" }, el("bdi", {}, shown(`${step.symbol}[${axis_label(row_axis, r)}, ${axis_label(column_axis, c)}]`))),
          derivation_view(work, style, { key, at }));
      }
    }
    if (sums === "row") line.append(el("td", { class: "sum" }, number_text(total(r), style)));
    body.append(line);
    // The expansion of a short table is below all tables of the step.
    if (expand && rows.length > most_above_expanded) body.append(el("tr", { class: "expand" }, el("td", { colspan: span }, contained(expand))));
    else if (expand) below = expand;
  }
  const axes = axes_text(row_axis, column_axis);
  const title = request.title === "" && axes === "" ? null : el("caption", {}, request.title, request.title !== "" && axes !== "" ? " " : null, axes === "" ? null : el("span", { class: "axes" }, axes));
  const table = el("table", { class: "matrix", role: step === null ? null : "grid" }, title, el("thead", {}, head_row), body);
  if (sums === "column") table.append(el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "sum"), ...columns.map((c) => el("td", { class: "sum" }, number_text(total(c), style))))));
  if (step !== null) make_grid(table, choose);
  const shortened = rows.length < matrix.rows || columns.length < matrix.columns;
  return { element: el("div", { class: "scroll" }, table, shortened && !request.only_rows && !request.only_columns
    ? el("p", { class: "caption" }, `${rows.length} of ${matrix.rows} rows, ${columns.length} of ${matrix.columns} columns; the JSON below contains all of them.`) : null), below };
}

/** The matrix that a step shows as it is. @param {Step} step */
function given_name(step) {
  const [operand] = step.operands;
  return step.operation === "show" && operand?.matrix.heads === step.result.heads ? { name: operand.name, place: step.name } : undefined;
}

/** Whether a step is X · W with both factors on the page. @param {Step} step */
function is_product(step) {
  return step.operation === "linear" && step.operands.length >= 2;
}

const characters_next_to_notes = 72;
const characters_across_page = 100;

/** The width of a step's tables in characters. @param {Step} step @param {boolean} [of_one] with tokens as columns: of one token only */
function characters_of(step, of_one = false) {
  const factors = is_product(step) ? step.operands.slice(0, 2).map((o) => o.matrix.columns).filter((columns) => columns <= small_parameters) : [];
  const columns = Math.min(step.result.columns, most_columns) + factors.reduce((sum, some) => sum + some, 0) - (of_one ? 2 * (step.result.columns - 1) : 0);
  return columns * (step.style.digits > 0 ? step.style.digits + 4 : 3) + 8 + 6 * factors.length;
}

/**
 * X · W = Q, or W · X = Q if a token is a column. A factor that is too large to read is shown by name and shape.
 * @param {Explanation} e
 * @param {Step} step
 * @param {State} state
 * @param {(id: string) => void} choose
 * @param {{heads: number[], max_characters: number, prefix?: string, only?: number, covered?: boolean}} options only: the one token that is shown; max_characters: available across
 */
function product_tables(e, step, state, choose, options) {
  const [x, w] = step.operands;
  const of_tokens = e.by_columns ? step.column_axis : step.row_axis;
  const plain = { name: "", extent: "", count: 0 };
  const only = options.only === undefined ? {} : e.by_columns ? { only_columns: [options.only] } : { only_rows: [options.only] };
  const base = { e, state, exact: /** @type {string[]} */ ([]), head: 0, step: null };
  /** @param {import("./explanation.js").Operand} factor */
  const is_small = (factor) => factor.matrix.heads === 1 && Math.min(factor.matrix.columns, factor.matrix.rows) > 0 && factor.matrix.columns <= (factor === x && e.by_columns ? most_columns : small_parameters) &&
    factor.matrix.rows <= (factor === x && !e.by_columns ? most_rows : small_parameters);
  /** @param {import("./explanation.js").Operand} factor @param {object} more */
  const table = (factor, more) => is_small(factor) ? matrix_table({ ...base, matrix: factor.matrix, style: factor.step ? factor.step.style : step.style,
    row_axis: plain, column_axis: plain, title: shown(factor.name), given: { name: factor.name, place: `${options.prefix ?? ""}${step.name}` }, ...more }, choose).element
    : el("p", { class: "too-large" }, el("i", {}, shown(factor.name)), ` (${factor.matrix.rows} × ${factor.matrix.columns})`);
  const words = { ...of_tokens, name: of_tokens.labels ? "token" : "" };
  const factors = [table(x, { ...(e.by_columns ? { column_axis: words } : { row_axis: words }), ...only }), table(w, {})];
  if (e.by_columns) factors.reverse();
  const m = step.result;
  /** @type {HTMLElement | null} */
  let below = null;
  const results = options.heads.map((head) => {
    const made = matrix_table({ ...base, matrix: m, style: step.style, row_axis: step.row_axis, column_axis: step.column_axis,
      title: `${shown(step.symbol)}${m.has_heads ? `, head ${head}` : ""}`, head, step, prefix: options.prefix, ...only }, choose);
    below ??= made.below;
    if (options.covered) for (const cell of made.element.querySelectorAll("td[data-cell]")) cell.classList.add("covered");
    return made.element;
  });
  const sign = (/** @type {string} */ text) => el("span", { class: "sign" }, text);
  // Next to each other if they fit; else as on a blackboard, with one factor above the product.
  const lines_up = characters_of(step, e.by_columns && options.only !== undefined) <= options.max_characters;
  return { element: el("div", { class: `product ${lines_up ? "in-line" : "blackboard"}` }, el("div", { class: "factor" }, factors[0]), sign("·"), el("div", { class: "factor" }, factors[1]), sign("="), ...results), below };
}

/**
 * The first step of a lesson's row: the matrix products that make its query, and the keys and values of all words.
 * @param {Explanation} e
 * @param {import("./attention.js").Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function products_figure(e, a, state, set) {
  const choose = (/** @type {string} */ id) => set({ open: state.open === id ? "" : id });
  const figure = el("div", { class: "products-figure" });
  for (const step of a.projections) {
    const is_query = step === a.projections[0] && step.row_axis.name !== "key" && step.column_axis.name !== "key";
    const head = Math.min(state.head, step.result.heads - 1);
    const { element, below } = product_tables(e, step, state, choose, { heads: [head], max_characters: characters_next_to_notes, prefix: "project ", covered: state.covered,
      ...(is_query && a.projections.length > 1 ? { only: state.query } : {}) });
    figure.append(element);
    if (below && !state.covered) figure.append(el("div", { class: "expand" }, below));
  }
  return figure;
}

/** @param {Axis} row @param {Axis} column */
function axes_text(row, column) {
  return [row.name === "" ? "" : `${row.name} ↓`, column.name === "" ? "" : `${column.name} →`].filter(Boolean).join(" ");
}

/** @param {Step} step */
function shape_text(step) {
  const m = step.result;
  const letters = step.row_axis.extent === "" || step.column_axis.extent === "" ? "" : `${m.has_heads ? "H, " : ""}${step.row_axis.extent}, ${step.column_axis.extent}`;
  const numbers = `${m.has_heads ? `${m.heads}, ` : ""}${m.rows}, ${m.columns}`;
  return letters === "" ? `(${numbers})` : `(${letters}) = (${numbers})`;
}

/**
 * Which axis sums to 1, and where the printed digits do not.
 * @param {Step} step
 */
function sums_text(step) {
  if (step.sums_to_one === "") return "";
  const by_row = step.sums_to_one === "row";
  const keys = by_row ? step.column_axis : step.row_axis;
  const queries = by_row ? step.row_axis : step.column_axis;
  const m = step.result;
  const differing = [];
  for (let o = 0; o < (by_row ? m.rows : m.columns) && m.heads === 1 && !step.style.scientific; ++o) {
    if (stored_index(by_row ? m.kept_rows : m.kept_columns, o) < 0) continue;
    let units = 0;
    let sum = 0;
    for (let i = 0; i < (by_row ? m.columns : m.rows); ++i) {
      const x = by_row ? number_at(m, 0, o, i) : number_at(m, 0, i, o);
      units += printed_units(x, step.style);
      sum += x;
    }
    if (units !== printed_units(sum, step.style)) differing.push(`${units_text(units, step.style)} (${shown(axis_label(queries, o))})`);
  }
  const more = differing.length > 4 ? ` and ${differing.length - 4} more` : "";
  return `Each ${step.sums_to_one} sums to 1 over the ${keys.name || "key"}s${differing.length > 0 ? `; rounded figures sum to ${differing.slice(0, 4).join(", ")}${more}` : ""}.`;
}

/**
 * @param {Explanation} e
 * @param {Step} step
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function step_section(e, step, state, set) {
  const choose = (/** @type {string} */ id) => set({ open: state.open === id ? "" : id });
  const tables = el("div", { class: "tables" });
  const base = { e, row_axis: step.row_axis, column_axis: step.column_axis, state, exact: /** @type {string[]} */ ([]) };
  /** @type {HTMLElement | null} */
  let below = null;
  /** @param {TableRequest} request */
  const add = (request) => {
    const made = matrix_table(request, choose);
    tables.append(made.element);
    below ??= made.below;
  };
  const m = step.result;
  const heads = m.heads <= most_heads ? Array.from({ length: m.heads }, (_, h) => h) : [Math.min(state.head, m.heads - 1)];
  if (is_product(step)) {
    const made = product_tables(e, step, state, choose, { heads, max_characters: characters_across_page });
    tables.append(made.element);
    below = made.below;
  } else {
    const titled = step.variants.length > 0 || m.has_heads || step.exact.length > 0;
    for (const head of heads) {
      add({ ...base, matrix: m, style: step.style, title: titled ? `${shown(step.symbol)}${m.has_heads ? `, head ${head}` : ""}` : "", head, step, given: given_name(step) });
    }
  }
  if (step.exact.length > 0) add({ ...base, matrix: m, style: step.style, title: `${shown(step.symbol)}, exactly`, head: 0, step, exact: step.exact });
  for (const variant of step.variants) {
    for (let head = 0; head < Math.min(variant.matrix.heads, most_heads); ++head) {
      add({ ...base, matrix: variant.matrix, style: variant.style, title: `${shown(variant.label)}${variant.matrix.has_heads ? `, head ${head}` : ""}`, head, step: null });
    }
  }
  const sums = sums_text(step);
  const compared = step.compared;
  const same = compared ? compared.compared - step.document.size : 0;
  const heading = el("h3", { id: `step-${step.index}` }, el("span", { class: "count" }, String(step.index)), el("bdi", {}, shown(step.term)),
    step.term.includes(step.name) ? null : el("span", { class: "own-name" }, ` ${shown(step.name)}`));
  const note = el("aside", { class: "note" }, step.document_name === "" ? null : el("p", { class: "document-name" }, "in the document ", el("bdi", {}, el("code", {}, shown(step.document_name)))),
    step.library ? null : el("p", {}, "Not computed by the library."),
    compared ? el("p", { class: "agree" }, `${same} of ${compared.compared} ${compared.compared === 1 ? "value matches" : "values match"} the document${compared.digits}.`) : null);
  // About this many characters fit next to the notes; the notes of a wider table go above it.
  const is_wide = characters_of(step) > characters_next_to_notes;
  return el("section", { class: is_wide ? "step wide" : "step", "aria-labelledby": `step-${step.index}` }, heading, note, el("div", { class: "body" },
    el("p", { class: "equation" }, formula(step.equation, step.symbol), el("span", { class: "shape" }, shape_text(step))),
    step.finding === "" ? null : el("p", { class: "step-finding" }, `${shown(step.finding)}${step.finding.endsWith(".") ? "" : "."}`),
    step.pictures.length > 0 ? scale_figure(step.pictures) : null, tables, below === null ? null : el("div", { class: "expand" }, below), sums === "" ? null : el("p", { class: "caption" }, sums),
    ...step.notes.map((text) => el("p", {}, shown(text))), ...step.errata.map((text) => el("p", { class: "erratum" }, el("b", {}, "Erratum "), shown(text)))));
}
