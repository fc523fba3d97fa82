// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the current row as a plain table: all keys, every digit.
// Read next: page.js.
import { el, shown } from "./elements.js";
import { stage_index } from "./attention.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

/**
 * @param {Attention} a
 * @param {State} state
 */
export function data_table(a, state) {
  const { head, query } = state;
  const columns = [...a.columns, ...(a.contribution ? [a.contribution] : [])];
  const body = el("tbody");
  for (let j = 0; j < a.num_keys; ++j) {
    const hidden = a.hidden(head, query, j);
    body.append(el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, shown(a.key_labels[j]))), ...columns.map((column) => {
      const x = column.at(head, query, j);
      if (hidden && !column.of_hidden && (column.stage >= stage_index.softmax || x === -Infinity)) return el("td", {}, "hidden");
      return el("td", {}, column.missing?.(head, query, j) ? "–" : String(x));
    })));
  }
  return el("table", { class: "data" }, el("caption", {}, `${a.has_heads ? `${shown(a.head_name(head))}, ` : ""}${a.has_words ? `“${shown(a.query_labels[query])}”` : `query ${query}`}`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "key"), ...columns.map((column) => el("th", { scope: "col" }, shown(column.title))))), body);
}
