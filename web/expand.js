// SPDX-License-Identifier: Apache-2.0
//
// How a number was computed, as terms and lines. For small steps the file has the derivation of every cell, from the C++
// side; the products of a score and a weight's share of its row are computed here, for any row.
// Read next: src/explain/steps/expansion.cpp, derivation_figure.js.
import { plain_number, subtrahend } from "./numbers.js";

/**
 * Terms that add up, each a product of its factors (or, of kind "shares", an exponential); then lines of text.
 * @typedef {{label: string, factors: number[], product: number, sum: number}} Term
 * @typedef {{terms: Term[], lines: {name: string, text: string}[], result: number, kind: "products" | "shares"}} CellDerivation
 */

/**
 * @param {CellDerivation} work
 * @param {string} label
 * @param {number[]} factors
 * @param {number} [product] if it is not the product of the factors
 */
export function add_term(work, label, factors, product) {
  const value = product ?? factors.reduce((all, x) => all * x, 1);
  work.terms.push({ label, factors, product: value, sum: (work.terms.at(-1)?.sum ?? 0) + value });
}

/**
 * A score as the products of the elements of a query and a key.
 * @param {ArrayLike<number>} query
 * @param {ArrayLike<number>} key
 * @param {(d: number) => string} label
 * @param {number} [result] the score itself if it is known; else the sum
 * @returns {CellDerivation}
 */
export function expand_products(query, key, label, result) {
  /** @type {CellDerivation} */
  const work = { terms: [], lines: [], result: 0, kind: "products" };
  for (let d = 0; d < query.length; ++d) add_term(work, label(d), [query[d], key[d]]);
  work.result = result ?? work.terms.at(-1)?.sum ?? 0;
  return work;
}

/**
 * e^(score − row_max). A largest score of ∞ gives 1, as in the kernel; if all scores are −∞, the result is 0.
 * @param {number} score
 * @param {number} row_max
 */
export function exponential(score, row_max) {
  if (score === -Infinity) return 0;
  return score === row_max ? 1 : Math.exp(score - row_max);
}

/**
 * A weight as one exponential over the sum of the row's exponentials.
 * @param {{label: string, score: number}[]} seen the keys that the query sees
 * @param {number} at which of them
 * @param {number} row_max
 * @param {number} row_sum
 * @param {number} weight
 * @param {number} digits
 * @returns {CellDerivation}
 */
export function expand_share(seen, at, row_max, row_sum, weight, digits) {
  /** @type {CellDerivation} */
  const work = { terms: [], lines: [], result: weight, kind: "shares" };
  const number = (/** @type {number} */ x) => plain_number(x, digits);
  for (const { label, score } of seen) add_term(work, label, [score], exponential(score, row_max));
  if (at < 0) {
    work.lines.push({ name: "hidden", text: "the mask hides this key: weight 0" });
    return work;
  }
  const power = number(exponential(seen[at].score, row_max));
  work.lines.push({ name: "largest score", text: number(row_max) },
    { name: "exponential", text: `e^(${number(seen[at].score)} − ${subtrahend(row_max, digits)}) = ${power}` },
    { name: "sum of all", text: number(row_sum) },
    { name: "share", text: `${power} / ${number(row_sum)} = ${number(weight)}` });
  return work;
}
