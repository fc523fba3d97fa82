// SPDX-License-Identifier: Apache-2.0
//
// The address of a lesson or of own matrices: what every page stores after #, the edited numbers and the settings.
//
//     #lesson=three-words&cell=X,0,1,2,2.5&scale=sqrt&attention=weights&head=0&query=1&step=mix
//     #matrices=%7B%22Q%22%3A…&causal=top_left&…
//
// Read next: numbers_view.js, ../state.js.
import { matrix_names, parse_typed, typed_text } from "./inputs.js";
import { setting_of, switches, wrong_setting } from "./switches.js";

/** @typedef {import("./inputs.js").Place} Place */
/** @typedef {{place: Place, x: number}} Edit */

const most_in_address = 16000;

/**
 * @param {string} address of the page's state
 * @param {{lesson: string, base: any, edits: Edit[], switches: import("./switches.js").Switches}} of
 */
export function numbers_address(address, { lesson, base, edits, switches: chosen }) {
  const parts = new URLSearchParams();
  if (lesson !== "") {
    parts.set("lesson", lesson);
  } else {
    const text = JSON.stringify(base);
    parts.set("matrices", text.length <= most_in_address ? text : "");
  }
  for (const { place, x } of edits) parts.append("cell", `${place.name},${place.head},${place.row},${place.column},${Object.is(x, -0) ? "-0" : typed_text(x)}`);
  for (const [key, value] of Object.entries(chosen)) parts.set(key, value);
  return `#${parts}${address.length > 1 ? `&${address.slice(1)}` : ""}`;
}

/**
 * What an address says; entries that are not valid are left out.
 * @param {string} hash
 */
export function read_numbers_address(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  /** @type {Edit[]} */
  const edits = [];
  for (const text of parts.getAll("cell")) {
    const found = /^(.+),(\d{1,7}),(\d{1,7}),(\d{1,7}),([^,]+)$/s.exec(text);
    const parsed = found ? parse_typed(found[5]) : null;
    if (found && parsed && "x" in parsed) edits.push({ place: { name: found[1], head: Number(found[2]), row: Number(found[3]), column: Number(found[4]) }, x: parsed.x });
  }
  /** @type {import("./switches.js").Switches} */
  const chosen = {};
  for (const one of switches) {
    const value = parts.get(one.key);
    if (value === null) continue;
    if (one.choices.some(([choice]) => choice === value) || (one.number !== "" && wrong_setting(one, value) === "")) chosen[one.key] = value;
  }
  let input = null;
  try {
    input = JSON.parse(parts.get("matrices") || "null");
  } catch {
    // An address that was cut off has no matrices.
  }
  if (input !== null && (typeof input !== "object" || Array.isArray(input) || matrix_names(input).length === 0)) input = null;
  return { lesson: parts.get("lesson") ?? "", edits, switches: chosen, input };
}

/** Leaves out the switches that are as in the document. @param {any} base @param {import("./switches.js").Switches} chosen */
export function without_defaults(base, chosen) {
  return Object.fromEntries(Object.entries(chosen).filter(([key, value]) => switches.some((one) => one.key === key && setting_of(base, one) !== value)));
}
