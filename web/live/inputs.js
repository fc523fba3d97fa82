// SPDX-License-Identifier: Apache-2.0
//
// The input of a lesson or of own matrices as the page edits it: the JSON of docs/guide/own-matrices.md as an object, its
// matrices (lists of rows, or of heads), and numbers as they are typed.
//
// Read next: document.js, cells.js.
import { number_of } from "../explanation.js";

/** @typedef {{name: string, head: number, row: number, column: number}} Place of a number: a matrix and the indices in it */
/** @typedef {number | "inf" | "-inf" | "nan"} InputNumber */
/** @typedef {{heads: number, rows: number, columns: number, has_heads: boolean}} Shape */

const settings_of_input = ["schema", "title", "citation", "tokens", "key_tokens", "errata", "names", "notes", "expected", "steps", "compare",
  "layout", "scale", "causal", "softmax", "softmax_base", "heads", "dtype", "query", "digits"];

/** The name of the row of seeds in a place. */
export const seed = "seed";

/** The names of the matrices, in their order. @param {any} input @returns {string[]} */
export function matrix_names(input) {
  return Object.keys(input).filter((name) => !settings_of_input.includes(name) && Array.isArray(input[name]));
}

/** @param {any} matrix @returns {Shape} */
export function shape_of(matrix) {
  if (!Array.isArray(matrix[0])) return { heads: 1, rows: 1, columns: matrix.length, has_heads: false };
  if (!Array.isArray(matrix[0][0])) return { heads: 1, rows: matrix.length, columns: matrix[0].length, has_heads: false };
  return { heads: matrix.length, rows: matrix[0].length, columns: matrix[0][0].length, has_heads: true };
}

const drawing = ["torch_normal", "torch_uniform", "scale_statistics"];

/**
 * The random generators of a lesson: for each, the steps that draw from it. A step with operands draws after them.
 * @param {any} input
 * @returns {number[][]}
 */
export function generators_of({ steps = [] }) {
  /** @type {number[][]} */
  const found = [];
  for (const [i, { operation, operands = [] }] of steps.entries()) {
    if (!drawing.includes(operation)) continue;
    const earlier = found.find((indices) => indices.some((one) => steps[one].result === operands[0]));
    if (earlier) earlier.push(i);
    else found.push([i]);
  }
  return found;
}

/** The seed of each generator. @param {any} input @returns {number[]} */
export function seeds_of(input) {
  return generators_of(input).map(([first]) => input.steps[first].numbers[0]);
}

/** The row of a number. @param {any} input @param {Place} place @returns {InputNumber[] | undefined} */
function row_of(input, { name, head, row }) {
  if (name === seed && head === 0 && row === 0 && seeds_of(input).length > 0) return seeds_of(input);
  const matrix = matrix_names(input).includes(name) ? input[name] : undefined;
  if (matrix === undefined) return undefined;
  const { has_heads } = shape_of(matrix);
  if (!Array.isArray(matrix[0])) return head === 0 && row === 0 ? matrix : undefined;
  return has_heads ? matrix[head]?.[row] : head === 0 ? matrix[row] : undefined;
}

/** The number in a place, or null. @param {any} input @param {Place} place */
export function number_in(input, place) {
  const x = row_of(input, place)?.[place.column];
  return x === undefined ? null : number_of(x);
}

/** @param {any} input @param {Place} place @param {number} x */
export function set_number(input, place, x) {
  const drawn = place.name === seed ? generators_of(input)[place.column] : undefined;
  if (drawn) input.steps = input.steps.map((/** @type {any} */ step, /** @type {number} */ i) => (drawn.includes(i) ? { ...step, numbers: [x, ...step.numbers.slice(1)] } : step));
  const row = row_of(input, place);
  if (row && place.column < row.length) row[place.column] = input_number(x);
}

/** @param {number} x @returns {InputNumber} */
export function input_number(x) {
  if (Number.isNaN(x)) return "nan";
  return Number.isFinite(x) ? x : x > 0 ? "inf" : "-inf";
}

/** Every number of a matrix, in the order of memory. @param {any} matrix @returns {number[]} */
export function numbers_of(matrix) {
  return matrix.flat(2).map(number_of);
}

/**
 * A number as it was typed: its value, or what is wrong with it.
 * @param {string} typed
 * @returns {{x: number, decimals: number} | {wrong: string, unfinished: boolean}}
 */
export function parse_typed(typed) {
  const text = typed.trim().replaceAll("−", "-").replace(/∞/g, "inf");
  if (text === "") return { wrong: "The cell is empty: type a number.", unfinished: true };
  if (/^[+-]?(inf|infinity)$/i.test(text)) return { x: text.startsWith("-") ? -Infinity : Infinity, decimals: 0 };
  if (/^nan$/i.test(text)) return { x: NaN, decimals: 0 };
  if (/^[+-]?\d+,\d+$/.test(text)) return { wrong: `“${typed.trim()}” has a comma: write ${text.replace(",", ".")}.`, unfinished: false };
  const found = /^[+-]?(?:\d+\.?(\d*)|\.(\d+))(?:e([+-]?\d+))?$/i.exec(text);
  if (!found) return { wrong: `“${typed.trim()}” is not a number.`, unfinished: /^[+-]?(\d*\.?\d*)?(e[+-]?)?$|^[+-]?(i|in|n|na)$/i.test(text) };
  const x = Number(text);
  if (!Number.isFinite(x)) return { wrong: `${typed.trim()} is out of range for double: at most 1.8e308.`, unfinished: false };
  const decimals = (found[1] ?? found[2] ?? "").length - Number(found[3] ?? 0);
  return { x, decimals: Math.min(12, Math.max(0, decimals)) };
}

/** A number as text that reads back the same. @param {number} x */
export function typed_text(x) {
  return String(input_number(x));
}

/** The decimals of a number as it would be typed. @param {number} x */
export function decimals_of(x) {
  const parsed = parse_typed(String(x));
  return "decimals" in parsed ? parsed.decimals : 0;
}

/** x plus a number of units of a decimal, without the noise of binary fractions. @param {number} x @param {number} units @param {number} decimals */
export function stepped(x, units, decimals) {
  if (!Number.isFinite(x)) return x;
  const more = Math.max(decimals, decimals_of(x));
  const next = x + units / 10 ** decimals;
  return Math.abs(next) < 1e15 ? Number(next.toFixed(more)) + 0 : next;
}

/** @param {any} matrix @returns {any} */
export function copy_of(matrix) {
  return Array.isArray(matrix) ? matrix.map(copy_of) : matrix;
}
