// SPDX-License-Identifier: Apache-2.0
//
// Numbers as the terminal prints them, digit for digit: fixed decimals with a leading zero and a true minus sign, ties
// to even as on the C++ side, "<0.0001" for nonzero numbers that would print as 0.
// Read next: src/explain/report/terminal.cpp, whose styled_number this is.

/**
 * How the numbers of one matrix are printed.
 * @typedef {{digits: number, scientific: boolean}} NumberStyle
 */

/** @type {NumberStyle} */
export const two_decimals = { digits: 2, scientific: false };

// This many exact digits of a double after the rounding position distinguish a tie from its neighbors: no other double
// is within 10^-17 of a tie.
const beyond_a_tie = 25;

/**
 * x ≥ 0 rounded to `digits` by `print`, ties to even: toFixed and toExponential round ties up.
 * @param {number} digits
 * @param {(digits: number) => string} print
 */
function rounded_to_even(digits, print) {
  const rounded = print(digits);
  const exact = print(digits + beyond_a_tie);
  const exponent = exact.indexOf("e") < 0 ? exact.length : exact.indexOf("e");
  const tail = exact.slice(exponent - beyond_a_tie, exponent);
  if (!/^50*$/.test(tail)) return rounded;
  let cut = exact.slice(0, exponent - beyond_a_tie);
  if (cut.endsWith(".")) cut = cut.slice(0, -1);
  return "02468".includes(cut.slice(-1)) ? cut + exact.slice(exponent) : rounded;
}

/**
 * "-1.5" as a reader sees it: "−1.5".
 * @param {string} text
 */
function with_true_minus(text) {
  return text.replace(/-/g, "−");
}

/**
 * "{:.3f}" of the C++ side, with an ASCII sign.
 * @param {number} x
 * @param {number} digits
 */
function fixed_number(x, digits) {
  const text = rounded_to_even(digits, (d) => Math.abs(x).toFixed(d));
  return x < 0 || Object.is(x, -0) ? "-" + text : text;
}

/**
 * "{:.3e}" of the C++ side, with true minus signs: two digits of exponent at least.
 * @param {number} x
 * @param {number} digits
 */
function scientific_number(x, digits) {
  const text = rounded_to_even(digits, (d) => Math.abs(x).toExponential(d));
  const padded = text.replace(/e([+-])(\d)$/, "e$10$2");
  return with_true_minus(x < 0 ? "-" + padded : padded);
}

/**
 * "0.4223", "−1.5000", "0" for exactly 0, "<0.0001" and ">−0.0001" for nonzero numbers that would print as 0, "−∞".
 * @param {number} x
 * @param {NumberStyle} style
 */
export function styled_number(x, style) {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return (x < 0 ? "−" : "") + "∞";
  if (x === 0) return "0";
  if (style.scientific) return scientific_number(x, style.digits);
  const text = fixed_number(x, style.digits);
  if (!/[1-9]/.test(text)) return with_true_minus((x < 0 ? ">" : "<") + text.replace(/0$/, "1"));
  return with_true_minus(text);
}

/**
 * The printed value in units of its last decimal, for adding up printed numbers.
 * @param {number} x
 * @param {NumberStyle} style
 */
export function printed_units(x, style) {
  return Number(fixed_number(x, style.digits).replace(".", ""));
}

/**
 * A number of units of the last decimal, printed.
 * @param {number} units
 * @param {NumberStyle} style
 */
export function units_text(units, style) {
  return styled_number(units / 10 ** style.digits, style);
}

/**
 * The style of numbers that the page computes, chosen as by style_for on the C++ side.
 * @param {ArrayLike<number>} numbers
 * @param {number | null} [digits] the requested digits
 * @returns {NumberStyle}
 */
export function style_for(numbers, digits = null) {
  let largest = 0;
  let whole = true;
  for (let i = 0; i < numbers.length; ++i) {
    const x = numbers[i];
    if (!Number.isFinite(x)) continue;
    largest = Math.max(largest, Math.abs(x));
    whole = whole && Number.isInteger(x);
  }
  const style = { digits: digits ?? (whole ? 0 : 4), scientific: largest >= (whole ? 1e12 : 1e7) };
  if (style.scientific && digits === null) style.digits = 4;
  if (digits === null && !whole && largest > 0 && largest < 1e-2) {
    style.digits = 3 - Math.floor(Math.log10(largest));
    if (style.digits > 8) {
      style.digits = 4;
      style.scientific = true;
    }
  }
  return style;
}

/**
 * A number within a line of the working: short ones in full, longer ones rounded, tiny ones by their power of ten
 * (working_number of expansion.cpp).
 * @param {number} x
 * @param {number} digits
 */
export function plain_number(x, digits) {
  const shortest = String(x);
  const point = shortest.indexOf(".");
  const is_short = Number.isFinite(x) && shortest.length <= 6 && point >= 0 && !shortest.includes("e");
  const decimals = is_short ? shortest.length - point - 1 : Math.max(digits, 4);
  if (x !== 0 && Math.abs(x) < 0.5 * 10 ** -decimals) return scientific_number(x, 3);
  return styled_number(x, style_for([x], Number.isInteger(x) ? null : decimals));
}

/** As plain_number(), after a minus sign: a negative number is in parentheses. @param {number} x @param {number} digits */
export function subtrahend(x, digits) {
  const text = plain_number(x, digits);
  return x < 0 ? `(${text})` : text;
}
