// SPDX-License-Identifier: Apache-2.0
//
// The data of a lesson or of arrays in the file: two JSON texts become steps with their matrices.
//
//     "explanation"   the output of regard --json: steps, results, labels, findings, the document's errata
//     "page"          how numbers are printed, each step's operands, the document's figures that differ from ours
//
// Read next: src/explain/steps/steps_html.cpp, which writes the second, and attention.js.
import { add_term } from "./expand.js";

/**
 * Numbers (heads, stored rows, stored columns), in the layout shown. A matrix that is too large to keep stores only the
 * listed rows or columns.
 * @typedef {object} Matrix
 * @property {number} heads
 * @property {number} rows
 * @property {number} columns
 * @property {boolean} has_heads
 * @property {Float64Array} numbers
 * @property {Uint8Array | null} hidden
 * @property {number[] | null} kept_rows
 * @property {number[] | null} kept_columns
 */

/** @typedef {{name: string, extent: string, count: number, labels?: string[]}} Axis */
/** @typedef {{name: string, matrix: Matrix, step: Step | null}} Operand */
/** @typedef {{head: number, row: number, column: number}} Cell */

/**
 * @typedef {object} Step
 * @property {number} index
 * @property {string} name
 * @property {string} term
 * @property {string} document_name
 * @property {string} operation
 * @property {string} symbol
 * @property {string} equation
 * @property {boolean} library
 * @property {string} finding
 * @property {Axis} row_axis
 * @property {Axis} column_axis
 * @property {Matrix} result
 * @property {"row" | "column" | ""} sums_to_one
 * @property {string[]} exact
 * @property {import("./numbers.js").NumberStyle} style
 * @property {number} factor
 * @property {number} causal_offset
 * @property {string} scale
 * @property {import("./expand.js").CellDerivation[] | null} works how each cell was computed, by its index in result
 * @property {Operand[]} requested_operands
 * @property {Operand[]} operands
 * @property {Map<string, {ours: string, theirs: string}>} document where ours differs, by "head,row,column"
 * @property {{compared: number, digits: string} | null} compared
 * @property {{label: string, matrix: Matrix, style: import("./numbers.js").NumberStyle}[]} variants
 * @property {import("./scale_figure.js").ScalePicture[]} pictures of random scores, one for each head size D
 * @property {string[]} notes
 * @property {string[]} errata
 */

/**
 * @typedef {object} Explanation
 * @property {string} title
 * @property {string} citation
 * @property {string[]} settings
 * @property {boolean} by_columns a token is a column
 * @property {string[]} tokens
 * @property {string[]} key_tokens
 * @property {number | null} focus
 * @property {Step[]} steps
 * @property {string[]} errata
 * @property {number | null} digits requested decimals
 * @property {string} command
 * @property {string} version
 * @property {string} instruction_set
 */

/** @param {unknown} x */
export function number_of(x) {
  return typeof x === "number" ? x : x === "inf" ? Infinity : x === "-inf" ? -Infinity : NaN;
}

/**
 * @param {any} nested lists of numbers, however deep
 * @param {number[]} into
 */
function flatten(nested, into) {
  if (Array.isArray(nested)) {
    for (const item of nested) flatten(item, into);
  } else {
    into.push(number_of(nested));
  }
}

/**
 * @param {any} step of "explanation"
 * @param {boolean} as_float32
 * @returns {Matrix}
 */
function result_of(step, as_float32) {
  /** @type {number[]} */
  const numbers = [];
  flatten(step.result, numbers);
  const has_heads = step.shape.length === 3;
  const [rows, columns] = step.shape.slice(-2);
  /** @type {Matrix} */
  const matrix = { heads: has_heads ? step.shape[0] : 1, rows, columns, has_heads,
    numbers: Float64Array.from(as_float32 ? numbers.map(Math.fround) : numbers), hidden: null,
    kept_rows: step.kept_rows ?? null, kept_columns: step.kept_columns ?? null };
  if (step.hidden) {
    matrix.hidden = new Uint8Array(numbers.length);
    for (const [head, row, column] of step.hidden) matrix.hidden[index_of(matrix, head, row, column)] = 1;
  }
  return matrix;
}

/**
 * @param {any} stored of "page"
 * @returns {Matrix}
 */
function stored_matrix(stored) {
  const matrix = { heads: stored.heads, rows: stored.rows, columns: stored.columns, has_heads: stored.has_heads,
    numbers: Float64Array.from(stored.numbers, number_of),
    hidden: stored.hidden ? new Uint8Array(stored.numbers.length) : null,
    kept_rows: stored.kept_rows ?? null, kept_columns: stored.kept_columns ?? null };
  for (const at of stored.hidden ?? []) if (matrix.hidden) matrix.hidden[at] = 1;
  return matrix;
}

/**
 * The stored index of a row or column of the whole matrix, or −1.
 * @param {number[] | null} kept
 * @param {number} index
 */
export function stored_index(kept, index) {
  return kept === null ? index : kept.indexOf(index);
}

/** @param {Matrix} m */
export function stored_rows(m) {
  return m.kept_rows === null ? m.rows : m.kept_rows.length;
}
/** @param {Matrix} m */
export function stored_columns(m) {
  return m.kept_columns === null ? m.columns : m.kept_columns.length;
}

/**
 * The index in numbers of a row and column of the whole matrix; −1 if it is not kept.
 * @param {Matrix} m
 * @param {number} head
 * @param {number} row
 * @param {number} column
 */
export function index_of(m, head, row, column) {
  const r = stored_index(m.kept_rows, row);
  const c = stored_index(m.kept_columns, column);
  return r < 0 || c < 0 ? -1 : (head * stored_rows(m) + r) * stored_columns(m) + c;
}

/**
 * The number in a cell of the whole matrix; NaN if it is not kept.
 * @param {Matrix} m
 * @param {number} head
 * @param {number} row
 * @param {number} column
 */
export function number_at(m, head, row, column) {
  const at = index_of(m, head, row, column);
  return at < 0 ? NaN : m.numbers[at];
}

/**
 * @param {Matrix} m
 * @param {number} head
 * @param {number} row
 * @param {number} column
 */
export function is_hidden(m, head, row, column) {
  const at = index_of(m, head, row, column);
  return at >= 0 && m.hidden !== null && m.hidden[at] !== 0;
}

/**
 * The label of an index on an axis: the word, else the index.
 * @param {Axis} axis
 * @param {number} index
 */
export function axis_label(axis, index) {
  return axis.labels?.[index] ?? String(index);
}

/**
 * @param {any} stored of "page": terms [label, factors] or [label, factors, product], lines [name, text]
 * @param {number} result
 * @param {string} operation
 * @returns {import("./expand.js").CellDerivation}
 */
function read_work(stored, result, operation) {
  /** @type {import("./expand.js").CellDerivation} */
  const work = { terms: [], lines: [], result, kind: operation === "weights" || operation === "softmax" ? "shares" : "products" };
  for (const [label, factors, product] of stored.terms ?? []) {
    add_term(work, label, factors.map(number_of), product === undefined ? undefined : number_of(product));
  }
  for (const [name, text] of stored.lines ?? []) work.lines.push({ name, text });
  return work;
}

/**
 * @param {any} data "explanation"
 * @param {any} page "page"
 * @returns {Explanation}
 */
export function read_explanation(data, page) {
  const matrices = page.matrices.map(stored_matrix);
  /** @type {Step[]} */
  const steps = [];
  /** @param {any} ref @returns {Operand} */
  const operand = (ref) => ({ name: ref.name, matrix: ref.step === undefined ? matrices[ref.matrix] : steps[ref.step].result,
    step: ref.step === undefined ? null : steps[ref.step] });
  data.steps.forEach((/** @type {any} */ step, /** @type {number} */ i) => {
    const more = page.steps[i];
    const result = more.exact_result === undefined ? result_of(step, data.dtype === "f32") : matrices[more.exact_result];
    const document = new Map();
    for (const [head, row, column, ours, theirs] of more.document ?? []) {
      document.set(`${head},${row},${column}`, { ours, theirs });
    }
    /** @type {number[]} */
    const printed = [];
    flatten(step.document?.numbers ?? [], printed);
    const digits = step.document?.significant_digits ?? step.document?.digits ?? 0;
    steps.push({ index: i, name: step.name, term: step.term, document_name: step.document_name ?? "", operation: step.operation,
      symbol: step.symbol, equation: step.equation, library: step.library, finding: step.finding ?? "",
      row_axis: step.rows, column_axis: step.columns, result, sums_to_one: step.sums_to_one ?? "",
      exact: step.exact ?? [], style: more.style, factor: number_of(more.factor), causal_offset: more.causal_offset,
      scale: more.scale, works: more.works ? more.works.map((/** @type {any} */ work, /** @type {number} */ n) =>
        read_work(work, result.numbers[n], step.operation)) : null, requested_operands: more.requested_operands.map(operand),
      operands: more.operands.map(operand), document,
      compared: step.document ? { compared: printed.length,
        digits: digits === 0 ? "" : ` to ${digits} ${step.document.significant_digits ? "significant digits" : digits === 1 ? "decimal place" : "decimal places"}` } : null,
      variants: (step.compare ?? []).map((/** @type {any} */ variant, /** @type {number} */ n) =>
        ({ label: variant.label, matrix: matrices[more.variants[n].matrix], style: more.variants[n].style })),
      pictures: step.pictures ?? [], notes: step.notes ?? [], errata: step.errata ?? [] });
  });
  return { title: data.title ?? "", citation: data.citation ?? "", settings: data.settings ?? [],
    by_columns: page.layout === "columns", tokens: data.tokens, key_tokens: page.key_tokens,
    focus: data.query ?? null, steps, errata: data.errata ?? [], digits: page.digits ?? null, command: data.command, version: data.version,
    instruction_set: data.instruction_set };
}
