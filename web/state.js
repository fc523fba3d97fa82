// SPDX-License-Identifier: Apache-2.0
//
// The reader's choices, and the address that stores them: #attention=weights&head=0&query=1&step=mix&open=…&pair=0&hide=1
// Drawing code registers a listener, which is called after each change.
// Read next: page.js.
import { stages } from "./attention.js";

/**
 * @typedef {object} State
 * @property {string} attention by name
 * @property {number} head
 * @property {number} query
 * @property {number} step how far the row is shown: index of stages
 * @property {string} open the cell that is expanded: "row KEY COLUMN", "project KIND DIMENSION", "mix DIMENSION", "STEP HEAD ROW COLUMN", or ""
 * @property {boolean} covered the result of the step, and all that follows from it, is hidden
 * @property {boolean} own_scale the map's color scale ends at its own largest weight
 * @property {boolean} no_special special tokens are not shown
 * @property {string} sort of all heads: "salience", "attended" or "layer"; "" is the first one that the file has
 * @property {string} filter of all heads: "all" or "clear"
 * @property {number} pair of sentences compared
 * @property {boolean} without the words to hide are hidden
 * @property {number} snapshot of a watched run, among those that the file keeps
 */

/** @param {State} state */
export function address_of(state) {
  const parts = new URLSearchParams(state.attention === "" ? {} : { attention: state.attention, head: String(state.head),
    query: String(state.query), step: stages[state.step] });
  if (state.attention === "" && state.head > 0) parts.set("head", String(state.head));
  if (state.open !== "") parts.set("open", state.open);
  if (state.pair > 0) parts.set("pair", String(state.pair));
  if (state.without) parts.set("hide", "1");
  if (state.snapshot >= 0) parts.set("snapshot", String(state.snapshot));
  return `#${parts}`;
}

/**
 * The state in an address; missing and invalid entries are left out.
 * @param {string} hash
 * @returns {Partial<State>}
 */
export function read_address(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  /** @type {Partial<State>} */
  const state = {};
  /** @param {string} name */
  const whole = (name) => {
    const text = parts.get(name) ?? "";
    return /^\d{1,6}$/.test(text) ? Number(text) : undefined;
  };
  const attention = parts.get("attention");
  if (attention !== null) state.attention = attention;
  const [head, query, pair, snapshot] = [whole("head"), whole("query"), whole("pair"), whole("snapshot")];
  if (snapshot !== undefined) state.snapshot = snapshot;
  if (pair !== undefined) state.pair = pair;
  if (parts.get("hide") === "1") state.without = true;
  if (head !== undefined) state.head = head;
  if (query !== undefined) state.query = query;
  const step = stages.indexOf(parts.get("step") ?? "");
  if (step >= 0) state.step = step;
  state.open = parts.get("open") ?? "";
  return state;
}
