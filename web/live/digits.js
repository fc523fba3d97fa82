// SPDX-License-Identifier: Apache-2.0
//
// The source of the numbers on a live page: the model, the rounding of its parameters, and the effect of the rounding.
// Read next: live.js.
import { el, shown } from "../elements.js";

const means = { int8: "parameters rounded to 8 bits, with one scale per row", f16: "parameters rounded to 16 bits", f32: "parameters as published" };

/**
 * @param {{model: string, weights: string, errors?: Record<string, string | number>}} about
 * @param {string} text
 */
export function digits_note(about, text) {
  const rounding = Object.entries(means).find(([name]) => name === about.weights)?.[1] ?? shown(about.weights);
  const errors = Object.entries(about.errors ?? {});
  const quoted = text.length > 60 ? `${text.slice(0, 57)}…` : text;
  return el("details", { class: "digits" }, el("summary", { "data-focus": "digits" }, "Where do these numbers come from?"),
    el("p", {}, `${shown(about.model)}: ${rounding}. All numbers on this page are identical to those printed by `, el("code", {}, el("bdi", {}, `regard explain --model ${shown(about.model)} "${shown(quoted)}"`)), "."),
    errors.length === 0 ? null : el("table", { class: "rounding", "aria-label": "effect of rounding the parameters" },
      el("tbody", {}, ...errors.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, shown(name)), el("td", {}, shown(String(value))))))));
}
