// SPDX-License-Identifier: Apache-2.0
//
// Whose digits a live page shows: the model, how its weights are rounded, and what the rounding changes.
// Read next: live.js.
import { el, shown } from "../elements.js";

const means = { int8: "weights rounded to 8 bits, with one scale per row", f16: "weights rounded to 16 bits", f32: "weights as published" };

/**
 * @param {{model: string, weights: string, errors?: Record<string, string | number>}} about
 * @param {string} text
 */
export function digits_note(about, text) {
  const rounding = Object.entries(means).find(([name]) => name === about.weights)?.[1] ?? shown(about.weights);
  const errors = Object.entries(about.errors ?? {});
  const quoted = text.length > 60 ? `${text.slice(0, 57)}…` : text;
  return el("details", { class: "digits" }, el("summary", { "data-focus": "digits" }, "Where do these numbers come from?"),
    el("p", {}, `${shown(about.model)}: ${rounding}. All numbers on this page are those printed by `, el("code", {}, el("bdi", {}, `regard explain --model ${shown(about.model)} "${shown(quoted)}"`)), "."),
    errors.length === 0 ? null : el("table", { class: "rounding", "aria-label": "what rounding the weights changes" },
      el("tbody", {}, ...errors.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, shown(name)), el("td", {}, shown(String(value))))))));
}
