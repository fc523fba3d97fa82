// SPDX-License-Identifier: Apache-2.0
//
// A watched training run, from the data in the file: the scores of every head at every snapshot, and at the snapshots
// that the file keeps also the weights on the probe, and the gradient of one row.
//
//     snapshots   0 1 2 3 4 5 …      scores of all
//     kept        0   2     5 …      weights: the slider moves over these; all snapshots unless the file would be too large
//
// A head is layer · heads + head. Read next: src/explain/training/training_html.cpp, training_page.js.
import { styled_number } from "./numbers.js";
import { shown } from "./elements.js";
import { decoded, float32s } from "./sentence.js";

/** @typedef {"pattern" | "previous" | "sink" | "entropy" | "ablation"} ScoreName */
/** @typedef {{text: string, kind: "pattern" | "previous_token", layer: number, head: number, snapshot: number, step: number}} HeadEvent */

/**
 * @typedef {object} Training
 * @property {any} data the JSON of the run, without curve and heads
 * @property {string[]} findings
 * @property {HeadEvent[]} events
 * @property {number} layers
 * @property {number} heads of a layer
 * @property {number} num_heads of all layers
 * @property {string[]} tokens of the probe
 * @property {(string | null)[]} targets
 * @property {number[][]} wanted
 * @property {number} query the row whose gradient is kept, or -1
 * @property {boolean} has_pattern
 * @property {string} pattern in words
 * @property {number[]} steps of all snapshots
 * @property {number[]} losses of the probe at all snapshots
 * @property {{step: number[], loss: any[], gradient_norm: any[], held_out_loss: any[], thinned: boolean}} curve
 * @property {number} last_step
 * @property {number} max_bytes
 * @property {number[]} kept snapshots that the slider moves over
 * @property {boolean} has_weights
 * @property {(snapshot: number, head: number, name: ScoreName) => number} score
 * @property {(name: ScoreName) => number} uniform
 * @property {(at: number, head: number) => Uint8Array} weights the lower triangle, 255 for 1; `at` counts kept snapshots
 * @property {(at: number, head: number) => {weights: number[], grad_weights: Float32Array, grad_scores: Float32Array}} row
 */

/** @type {ScoreName[]} */
const score_names = ["pattern", "previous", "sink", "entropy", "ablation"];

/** @param {any} data "explanation" @param {any} page "page" @returns {Training} */
export function read_training(data, page) {
  const { layers, heads, probe } = data;
  const num_heads = layers * heads;
  const scores = float32s(page.scores);
  const triangle = (probe.tokens.length * (probe.tokens.length + 1)) / 2;
  const visible = probe.query + 1;
  const has_weights = page.weights !== undefined;
  const bytes = has_weights ? new Uint8Array(decoded(page.weights)) : new Uint8Array();
  const gradients = has_weights ? float32s(page.gradients) : new Float32Array();
  /** @param {number} at @param {number} head */
  const weights = (at, head) => bytes.subarray((at * num_heads + head) * triangle, (at * num_heads + head + 1) * triangle);
  return { data, findings: page.findings, events: data.events, layers, heads, num_heads, tokens: probe.tokens, targets: probe.targets, wanted: probe.wanted,
    query: probe.query, has_pattern: probe.uniform.pattern !== undefined, pattern: data.pattern === "" ? "the expected keys" : data.pattern,
    steps: data.snapshots.map((/** @type {any} */ s) => s.step), losses: data.snapshots.map((/** @type {any} */ s) => s.loss), curve: page.curve, last_step: page.last_step,
    max_bytes: page.max_bytes, kept: has_weights ? page.kept : data.snapshots.map((/** @type {any} */ _, /** @type {number} */ i) => i), has_weights,
    score: (snapshot, head, name) => scores[(snapshot * num_heads + head) * score_names.length + score_names.indexOf(name)],
    uniform: (name) => probe.uniform[name], weights,
    row: (at, head) => {
      const from = 2 * visible * (at * num_heads + head);
      const first = (probe.query * visible) / 2;
      return { weights: Array.from(weights(at, head).subarray(first, first + visible), (x) => x / 255),
        grad_weights: gradients.subarray(from, from + visible), grad_scores: gradients.subarray(from + visible, from + 2 * visible) };
    } };
}

/** The score that is compared between heads. @param {Training} t @returns {ScoreName} */
export function compared_score(t) {
  return t.has_pattern ? "pattern" : "previous";
}

/** "L1H0" @param {Training} t @param {number} head */
export function head_label(t, head) {
  return `L${Math.floor(head / t.heads)}H${head % t.heads}`;
}

/** @param {Training} t @param {HeadEvent} event */
export function head_of_event(t, event) {
  return event.layer * t.heads + event.head;
}

/** The head that the findings begin with, or the one with the largest score. @param {Training} t */
export function opening_head(t) {
  const last = t.steps.length - 1;
  const kind = t.has_pattern ? "pattern" : "previous_token";
  const formed = t.events.filter((event) => event.kind === kind).map((event) => head_of_event(t, event));
  const heads = formed.length > 0 ? formed : Array.from({ length: t.num_heads }, (_, head) => head);
  const score = (/** @type {number} */ head) => t.score(last, head, compared_score(t));
  return heads.reduce((best, head) => (score(head) > score(best) ? head : best));
}

/** The kept snapshot at a step, or the last one before it: an index of `kept`. @param {Training} t @param {number} step */
export function kept_at_step(t, step) {
  let at = 0;
  while (at + 1 < t.kept.length && t.steps[t.kept[at + 1]] <= step) ++at;
  return at;
}

/** The position of a step on the time axis, from 0 to 1 (training_curve.h). @param {Training} t @param {number} step */
export function step_position(t, step) {
  const unit = Math.max(1, t.last_step / 60);
  return Math.log1p(step / unit) / Math.log1p(t.last_step / unit);
}

/** Steps to name on the time axis, at least `gap` of it apart. @param {Training} t @param {number} gap */
export function step_ticks(t, gap) {
  const ticks = [0];
  for (let decade = 1; decade <= t.last_step; decade *= 10) {
    for (const step of [decade, 2 * decade, 5 * decade]) {
      const at = step_position(t, step);
      if (at - step_position(t, ticks[ticks.length - 1]) >= gap && at <= 1 - gap) ticks.push(step);
    }
  }
  return [...ticks, t.last_step];
}

/** A loss, a score or a norm; "–" where the run has none. @param {unknown} x @param {number} [digits] */
export function measured(x, digits = 2) {
  if (typeof x === "number" && !Number.isNaN(x)) return styled_number(x, { digits, scientific: false });
  return typeof x === "string" ? x : "–";
}

/** A number of any size, in three digits. @param {number} x */
export function small_measure(x) {
  if (!Number.isFinite(x) || x === 0) return styled_number(x, { digits: 3, scientific: false });
  const size = Math.floor(Math.log10(Math.abs(x)));
  return styled_number(x, size < -4 ? { digits: 1, scientific: true } : { digits: Math.max(0, 2 - size), scientific: false });
}

/** "“d” (9)" @param {Training} t @param {number} position */
export function token_label(t, position) {
  const text = shown(t.tokens[position]);
  return `“${text.length > 14 ? `${text.slice(0, 13)}…` : text}” (${position})`;
}
