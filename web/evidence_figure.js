// SPDX-License-Identifier: Apache-2.0
//
// How far a weight depends on the choice of the head, and the effect of hiding words: two strips of marks.
//
//     in all heads   ||||| | |         |        one tick per head at its weight; the head shown has the key's color
//     hidden alone   ●●● ●●          ●          one dot per word: how much the query's vector changes without it
//
// The weights are computed here for any query; the cosines are in the file, for the word of the command only.
// Read next: sentence.js, src/explain/sentence/sentence_findings.cpp.
import { styled_number, two_decimals } from "./numbers.js";
import { el, quoted, shown, svg } from "./elements.js";

/** @typedef {import("./sentence.js").Sentence} Sentence */
/** @typedef {import("./state.js").State} State */

const of_cosines = { digits: 3, scientific: false };
const strip_box = { width: 440, height: 58, left: 10, right: 28, base: 34 };

/** @param {number} x @param {number} end of the scale */
function position_on(x, end) {
  return strip_box.left + (x / end) * (strip_box.width - strip_box.left - strip_box.right);
}

/** The frame of a strip: its line, and a name at both ends. @param {string} label @param {string} low @param {string} high */
function strip_frame(label, low, high) {
  return svg("svg", { class: "evidence-strip", viewBox: `0 0 ${strip_box.width} ${strip_box.height}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: strip_box.left, x2: strip_box.width - strip_box.right, y1: strip_box.base, y2: strip_box.base }),
    svg("text", { class: "tick", x: strip_box.left, y: strip_box.height - 6 }, low),
    svg("text", { class: "tick", x: strip_box.width - strip_box.right, y: strip_box.height - 6, "text-anchor": "middle" }, high));
}

/**
 * The word whose weight is compared between heads: the target of the command, else the one attended to most, except
 * special tokens.
 * @param {Sentence} s
 * @param {State} state
 */
export function key_compared(s, state) {
  if (state.query === s.focus.word && state.head === s.focus.layer * s.heads + s.focus.head) return s.data.chosen.target;
  const weights = s.row(state.head, state.query).words;
  let best = -1;
  for (const [i, w] of s.words.entries()) {
    if (!w.special && !(s.causal && i > state.query) && (best < 0 || weights[i] > weights[best])) best = i;
  }
  return best;
}

/** @param {Sentence} s @param {State} state */
function heads_strip(s, state) {
  const target = key_compared(s, state);
  const count = s.layers * s.heads;
  // With words hidden, the row of the command is compared as before hiding.
  const whole = s.data.in_all_heads && state.query === s.focus.word && target === s.data.chosen.target ? s.data.in_all_heads.weights.flat() : null;
  const weights = Array.from({ length: count }, (_, head) => Number(whole ? whole[head] : s.row(head, state.query).words[target]));
  const mean = weights.reduce((sum, w) => sum + w, 0) / count;
  const uniform = s.words[target].tokens.length / (s.causal ? state.query + 1 : s.data.tokens.length);
  const [from, to] = [s.labels[state.query], s.labels[target]].map(shown);
  const own = styled_number(weights[state.head], two_decimals);
  const text = `“${from}” → “${to}” in each of ${count} heads: mean ${styled_number(mean, two_decimals)}, uniform ${styled_number(uniform, two_decimals)}; `;
  const picture = strip_frame(`${text}in the head shown ${own}`, "0", "1");
  picture.append(svg("line", { class: "uniform", x1: position_on(uniform, 1), x2: position_on(uniform, 1), y1: strip_box.base - 26, y2: strip_box.base + 5 }));
  const others = weights.filter((_, head) => head !== state.head);
  picture.append(svg("path", { class: "head", "data-weights": others.join(" "), d: others.map((w) => `M${position_on(w, 1).toFixed(2)} ${strip_box.base - 15}v15`).join("") }));
  const at = position_on(weights[state.head], 1);
  picture.append(svg("path", { class: "mean", d: `M ${position_on(mean, 1)} ${strip_box.base + 2} l 4 7 h -8 Z` }),
    svg("line", { class: "shown", "data-weights": weights[state.head], x1: at, x2: at, y1: strip_box.base - 20, y2: strip_box.base + 3 }),
    svg("text", { class: "shown-name", x: at, y: strip_box.base - 24, "text-anchor": "middle" }, own));
  return el("figure", { class: "evidence-heads" }, picture, el("figcaption", {}, quoted(text), el("span", { class: "key-name" }, `the head shown ${own}`), `. ▲ mean; dashed: uniform. `, quoted(s.data.findings.association)));
}

/** @param {Sentence} s */
function hidden_strip(s) {
  /** @type {{word: number, cosine: number}[]} */
  const alone = s.data.hidden_alone.map((/** @type {any} */ one) => ({ word: one.word, cosine: Number(one.cosine) }));
  if (alone.length === 0) return null;
  const name = shown(s.labels[s.focus.word]);
  const all = alone.map((one) => `${shown(s.labels[one.word])} ${styled_number(one.cosine, of_cosines)}`).join(", ");
  const end = Math.max(1 - alone[0].cosine, 1e-6);
  const picture = strip_frame(`cosine of “${name}” with the original, with each other ${s.noun} hidden alone: ${all}`, styled_number(1, of_cosines), styled_number(1 - end, of_cosines));
  // Names in the order of the change, where they fit.
  let free = Infinity;
  for (const [n, { word, cosine }] of alone.entries()) {
    const x = position_on(1 - cosine, end);
    const label = shown(s.labels[word]).slice(0, 14);
    const half = 3.7 * label.length + 3;
    picture.append(svg("circle", { class: word === s.data.chosen.target ? "target" : "other", "data-cosine": cosine, cx: x, cy: strip_box.base, r: 4.5 }));
    if (x + half > free || (n > 0 && x - half < strip_box.left - 8)) continue;
    picture.append(svg("text", { class: word === s.data.chosen.target ? "shown-name" : "tick", x: Math.min(x, strip_box.width - half), y: strip_box.base - 12, "text-anchor": "middle" }, label));
    free = x - half;
  }
  const found = s.data.findings.evidence;
  return el("figure", { class: "evidence-hidden" }, picture, el("figcaption", {}, quoted(found)));
}

/**
 * @param {Sentence} s
 * @param {State} state
 */
export function evidence_figure(s, state) {
  const of_focus = state.query === s.focus.word;
  return el("div", { class: "evidence" }, heads_strip(s, state),
    of_focus ? hidden_strip(s) : el("figure", {}, el("figcaption", {}, `The file contains the test with hidden ${s.noun}s only for “${shown(s.labels[s.focus.word])}”.`)));
}
