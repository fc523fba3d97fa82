// SPDX-License-Identifier: Apache-2.0
//
// What can be done with own matrices: add, rename, remove and transpose one, and name the tokens.
//
// Read next: numbers.js, own_matrices.js, numbers_view.js.
import { matrix_names, shape_of } from "./inputs.js";
import { missing_of } from "./numbers.js";
import { example_matrices } from "./own_matrices.js";

/**
 * @param {object} of
 * @param {() => any} of.base the matrices as they are
 * @param {(base: any) => void} of.change
 * @param {(text: string) => void} of.say tells what was added
 * @param {(text: string) => void} of.wrong
 */
export function own_edits({ base, change, say, wrong }) {
  return {
    /** @param {string} name @param {any} matrix */
    add: (name, matrix) => {
      // The first own matrix takes the place of the example.
      const more = { ...(base() === example_matrices ? {} : base()), [name]: matrix };
      change(more);
      const { heads, rows, columns, has_heads } = shape_of(matrix);
      say(`${name}: ${has_heads ? `${heads} × ` : ""}${rows} × ${columns}. ${missing_of(more)}`);
    },
    /** @param {string[]} tokens */
    tokens: (tokens) => {
      const { tokens: _, query: __, ...others } = base();
      change(tokens.length > 0 ? { ...others, tokens } : others);
    },
    /** Whether a matrix has the name now. @param {string} name @param {string} to */
    rename: (name, to) => {
      if (to === name) return true;
      const is_free = to !== "" && !(to in base()) && matrix_names({ [to]: [] }).length === 1;
      if (is_free) change(Object.fromEntries(Object.entries(base()).map(([key, value]) => [key === name ? to : key, value])));
      else wrong(to === "" ? "A matrix needs a name." : `“${to}” is taken: choose another name.`);
      return is_free;
    },
    /** @param {string} name */
    remove: (name) => change(Object.fromEntries(Object.entries(base()).filter(([key]) => key !== name))),
    /** @param {string} name */
    transpose: (name) => {
      const matrix = base()[name];
      const rows = Array.isArray(matrix[0]) ? matrix : [matrix];
      /** @param {any[][]} one */
      const turned = (one) => one[0].map((_, c) => one.map((row) => row[c]));
      change({ ...base(), [name]: shape_of(matrix).has_heads ? rows.map(turned) : turned(rows) });
    } };
}
