// SPDX-License-Identifier: Apache-2.0
//
// The head's output through the layer: this head, all heads together, the residual added (and normalized in an
// encoder), the feed-forward; each is a strip of the model's full width. The file has them for the word of the command only.
// Read next: sentence.js.
import { styled_number, two_decimals } from "./numbers.js";
import { el, shown, word } from "./elements.js";
import { strip } from "./derivation_figure.js";
import { float32s } from "./sentence.js";

/** @typedef {import("./sentence.js").Sentence} Sentence */
/** @typedef {import("./state.js").State} State */

/** @param {ArrayLike<number>} numbers */
function norm_of(numbers) {
  let sum = 0;
  for (let i = 0; i < numbers.length; ++i) sum += numbers[i] * numbers[i];
  return Math.sqrt(sum);
}

/**
 * @param {Sentence} s
 * @param {State} state
 */
export function path_figure(s, state) {
  const { focus, width } = s;
  const name = word(s.labels[focus.word], "query");
  if (state.query !== focus.word) {
    return el("p", { class: "caption" }, "The file contains the vectors through the layer only for ", name, ".");
  }
  const layer = Math.floor(state.head / s.heads);
  /** @param {string} what */
  const of_layer = (what) => float32s(focus[what]).subarray(layer * width, (layer + 1) * width);
  const is_own = state.head === focus.layer * s.heads + focus.head;
  /** @type {[string, Float32Array, string][]} */
  const before = is_own ? [[`head ${state.head % s.heads}, after W_output`, float32s(focus.head_output), "context"]] : [];
  /** @type {[string, Float32Array, string][]} */
  const rows = s.causal ? [
    [layer === 0 ? "embedded" : `after layer ${layer - 1}`, of_layer("input"), "value"], ...before,
    [`all ${s.heads} heads`, of_layer("attention_output"), "context"],
    ["added to the residual", of_layer("residual"), "value"],
    ...(focus.feed_forward ? [/** @type {[string, Float32Array, string]} */ (["feed-forward of its norm", of_layer("feed_forward"), "neutral"])] : []),
    [`“${shown(s.words[focus.word].text)}” after layer ${layer}`, of_layer("output"), "value"]] : [
    [layer === 0 ? "word and position, normalized" : `after layer ${layer - 1}`, of_layer("input"), "value"],
    ...before,
    [`all ${s.heads} heads and the bias`, of_layer("attention_output"), "context"],
    ["added to the residual, normalized", of_layer("attention_normed"), "value"],
    ["feed-forward", of_layer("feed_forward"), "neutral"],
    [`added, normalized: “${shown(s.words[focus.word].text)}” after layer ${layer}`, of_layer("output"), "value"]];
  const body = el("tbody");
  for (const [label, numbers, kind] of rows) {
    body.append(el("tr", {}, el("th", { scope: "row" }, shown(label)), el("td", { class: "strip-cell" }, strip(numbers, { width: 384, height: 26, kind, label: `${label}, ${width} elements` })),
      el("td", {}, styled_number(norm_of(numbers), two_decimals))));
  }
  const table = el("table", { class: "path", "aria-label": "the vector through the layer" },
    el("thead", {}, el("tr", {}, el("td"), el("th", { scope: "col" }, `${width} elements, each strip on its own scale`), el("th", { scope: "col" }, "L2 norm"))), body);
  const kept = s.data.cosine_with_before;
  return kept === undefined ? table : el("div", {}, table, el("p", { class: "caption" },
    `Cosine of this vector with the one computed with nothing hidden, after each layer: ${kept.map((/** @type {any} */ c) => styled_number(Number(c), { digits: 3, scientific: false })).join(", ")}.`));
}
