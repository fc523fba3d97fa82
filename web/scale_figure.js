// SPDX-License-Identifier: Apache-2.0
//
// The effect of division by √D on random scores, for all head sizes D at once: the histogram of the scores and the mean
// weights of a query's keys, without the division on the left and with it on the right. All histograms share one axis
// and each is as high as its fullest bin; all weights are on one scale of 0 to 1.
// Read next: src/explain/lessons/lesson_operations.cpp, scale_statistics.
import { styled_number, two_decimals } from "./numbers.js";
import { el, svg } from "./elements.js";

/** @typedef {{low: number, high: number, counts: number[], below: number, above: number, ranked_weights: number[]}} ScoreSample */
/** @typedef {{head_size: number, plain: ScoreSample, scaled: ScoreSample}} ScalePicture */

const whole = { digits: 0, scientific: false };

/** @param {ScoreSample} sample */
function count_of(sample) {
  return sample.counts.reduce((sum, count) => sum + count, sample.below + sample.above);
}

/** The share of the scores beyond the axis, in words; empty if there is none. @param {ScoreSample} sample */
function outside_text(sample) {
  const beyond = sample.below + sample.above;
  return beyond === 0 ? "" : `${styled_number((100 * beyond) / count_of(sample), whole)}\u00a0% outside`;
}

/** @param {ScoreSample} sample @param {string} name @param {number} head_size */
function histogram(sample, name, head_size) {
  const [width, height] = [sample.counts.length, 40];
  const fullest = Math.max(1, ...sample.counts);
  const outside = outside_text(sample);
  const picture = svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `histogram of ${name} for D = ${head_size} from ${styled_number(sample.low, whole)} to ${styled_number(sample.high, whole)}${outside === "" ? "" : `, ${outside}`}` });
  for (const [i, count] of sample.counts.entries()) {
    const bar = (count / fullest) * (height - 1);
    if (count > 0) picture.append(svg("rect", { x: i, width: 1, y: (height - bar).toFixed(2), height: bar.toFixed(2) }));
  }
  const zero = (width * -sample.low) / (sample.high - sample.low);
  picture.append(svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: height }));
  return picture;
}

/** @param {ScoreSample} sample @param {string} name @param {number} head_size */
function weight_bars(sample, name, head_size) {
  const weights = sample.ranked_weights;
  const [width, height] = [weights.length, 40];
  const picture = svg("svg", { class: "weights", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `mean weights ${name} of a query’s ${weights.length} keys for D = ${head_size}, largest first: ${weights.map((weight) => styled_number(weight, two_decimals)).join(", ")}` });
  for (const [i, weight] of weights.entries()) {
    const bar = Math.max(0.5, weight * (height - 1));
    picture.append(svg("rect", { x: i + 0.1, width: 0.8, y: (height - bar).toFixed(2), height: bar.toFixed(2) },
      svg("title", {}, `${i === 0 ? "largest weight" : `weight number ${i + 1}`}: ${styled_number(weight, { digits: 4, scientific: false })}`)));
  }
  const uniform = (height - (height - 1) / width).toFixed(2);
  picture.append(svg("line", { class: "uniform", x1: 0, x2: width, y1: uniform, y2: uniform }));
  return picture;
}

/** @param {ScoreSample} sample @param {"plain" | "scaled"} kind @param {number} head_size */
function cells(sample, kind, head_size) {
  const [score, weight] = kind === "plain" ? ["q·k", "p"] : ["q·k/√D", "p′"];
  return [el("td", { class: kind }, histogram(sample, score, head_size), el("small", {}, outside_text(sample))),
    el("td", {}, weight_bars(sample, weight, head_size), el("small", {}, `largest ${styled_number(sample.ranked_weights[0], two_decimals)}`))];
}

/** @param {ScalePicture[]} pictures */
export function scale_figure(pictures) {
  const { low, high, ranked_weights } = pictures[0].plain;
  const scores = count_of(pictures[0].plain);
  const keys = ranked_weights.length;
  const axis = () => el("span", { class: "axis", "aria-hidden": "true" }, ...[low, (low + high) / 2, high].map((x, i) => el("span", { class: i === 1 ? "middle" : null }, styled_number(x, whole))));
  const ranks = () => el("span", { class: "axis", "aria-hidden": "true" }, el("span", {}, "1st"), el("span", {}, `${keys}th`));
  return el("figure", { class: "scale-figure" },
    el("div", { class: "scroll" }, el("table", {},
      el("colgroup", {}, ...["", "scores", "", "scores", ""].map((name) => el("col", { class: name || null }))),
      el("thead", {},
        el("tr", {}, el("td", {}), el("th", { scope: "colgroup", colspan: 2 }, "Without the scale"), el("th", { scope: "colgroup", colspan: 2, class: "scaled" }, "Divided by √D")),
        el("tr", {}, el("td", {}), el("th", { scope: "col" }, "scores q·k"), el("th", { scope: "col" }, "weights p"),
          el("th", { scope: "col" }, "scores q·k/√D"), el("th", { scope: "col" }, "weights p′"))),
      el("tbody", {}, ...pictures.map(({ head_size, plain, scaled }) => el("tr", {}, el("th", { scope: "row" }, `D = ${head_size}`),
        ...cells(plain, "plain", head_size), ...cells(scaled, "scaled", head_size)))),
      el("tfoot", {}, el("tr", {}, el("td", {}), el("td", {}, axis()), el("td", {}, ranks()), el("td", {}, axis()), el("td", {}, ranks()))))),
    el("figcaption", { class: "caption" }, `The ${scores} scores of ${scores / keys} queries with ${keys} keys each. All histograms share one axis; each is scaled to its fullest bin. `,
      `Next to each: the weights of a query’s keys from the largest to the smallest, averaged over the queries, from 0 to 1; the dashed line is the uniform weight, ${styled_number(1 / keys, two_decimals)}.`));
}
