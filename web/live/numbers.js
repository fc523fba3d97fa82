// SPDX-License-Identifier: Apache-2.0
//
// A lesson or own matrices as the reader has changed them: the input for the core, the command that prints the same
// numbers, and what own matrices still need.
//
// Read next: inputs.js, numbers_view.js.
import { copy_of, matrix_names, seed, set_number } from "./inputs.js";
import { options_of, set_setting } from "./switches.js";

/** @typedef {import("./inputs.js").Place} Place */
/** @typedef {import("./numbers_link.js").Edit} Edit */
/** @typedef {import("./switches.js").Switches} Switches */

/**
 * A lesson, or own matrices if its name is "".
 * @typedef {object} Numbers
 * @property {string} lesson
 * @property {any} base the input without edits and switches
 * @property {Map<string, Edit>} edits of a lesson
 * @property {Switches} chosen
 * @property {import("./marks.js").Picture | null} own the lesson's own picture
 * @property {any} own_answer its data
 * @property {any} drawn the input of the picture, or null if there is none
 * @property {boolean} stale the picture is that of an earlier input
 */

/** @param {Place} place */
export function key_of_place({ name, head, row, column }) {
  return `${head} ${row} ${column} ${name}`;
}

/** The lesson's matrices with tokens on the other axis. @param {Edit} edit @returns {Edit} */
export function transposed_edit({ place, x }) {
  return { x, place: place.name.startsWith("b_") || place.name === seed ? place : { ...place, row: place.column, column: place.row } };
}

/** @param {Numbers} of */
export function input_of(of) {
  const input = { ...of.base };
  for (const name of matrix_names(input)) input[name] = copy_of(input[name]);
  for (const { place, x } of of.edits.values()) set_number(input, place, x);
  for (const [key, value] of Object.entries(of.chosen)) if (key !== "layout" || of.lesson === "") set_setting(input, key, value);
  return input;
}

/** The command that prints the same numbers. @param {Numbers} of */
export function command_of({ lesson, edits, chosen }) {
  if (lesson === "") return "regard explain --input matrices.json";
  if (edits.size > 0) return `regard explain --input ${lesson}.json`;
  const layout = chosen.layout ? ` --layout ${chosen.layout}` : "";
  const options = options_of(chosen, ["layout"]);
  return options.length === 0 ? `regard lesson ${lesson}${layout}` : `regard lesson ${lesson}${layout} --export | regard explain --input - ${options.join(" ")}`;
}

/** What the page shows, from an answer that only this side reads. @param {import("./answers.js").Answer} answer */
export const data_of_answer = ({ text }) => {
  const { explanation, page, ...rest } = JSON.parse(text);
  return { data: explanation, text: text.slice(text.indexOf(": ") + 2, text.indexOf(',\n"page": ')), page, comparison: null, rest };
};

/** An error of the core, without where it is in a text that the reader does not see. @param {string} reason */
export const told = (reason) => `${reason.slice(0, 1).toUpperCase()}${reason.slice(1)}`.replace(/^The numbers: (byte \d+: )?/, "").replace(/([^.])$/, "$1.");

/** @param {any} input @param {Switches} chosen @returns {Numbers} */
export const own_numbers = (input, chosen) => ({ lesson: "", base: input, edits: new Map(), chosen, own: null, own_answer: null, drawn: null, stale: false });
/** @param {any} input */
export function is_complete(input) {
  return missing_of(input) === "";
}
/** What the standard steps still need, as a sentence. @param {any} input */
export function missing_of(input) {
  const names = matrix_names(input);
  if (input.steps) return "";
  const wanted = names.some((name) => name === "X" || name.startsWith("W_") || name.startsWith("b_")) ? ["X", "W_query", "W_key", "W_value"] : ["Q", "K", "V"];
  const missing = wanted.filter((name) => !names.includes(name));
  if (missing.length === 0) return "";
  if (names.length === 0) return "Needed: Q, K and V; or X, W_query, W_key and W_value.";
  return `Still needed: ${missing.length > 1 ? `${missing.slice(0, -1).join(", ")} and ${missing.at(-1)}` : missing[0]}.`;
}
