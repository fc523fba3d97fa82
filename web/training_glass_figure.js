// SPDX-License-Identifier: Apache-2.0
//
// One row of the chosen head under the glass: its weights, the gradient of the loss with respect to each weight, and
// the change of each score in a gradient step: where the gradient moves the attention.
//
//     P    ▁▁▂▁▇▁▁        dS = P · (dP − Σ P dP)
//     dP   ▔▁▔▔▂▔▔        a step changes the scores by −dS: a key gains weight if −dS > 0
//     −dS  ▔▔▔▔▇▔▔
//
// Bars keep their elements; only their heights change from snapshot to snapshot. Read next: training.js.
import { styled_number } from "./numbers.js";
import { el, shown, svg } from "./elements.js";
import { head_label, small_measure, token_label } from "./training.js";

/** @typedef {import("./training.js").Training} Training */
/** @typedef {import("./state.js").State} State */

const strip_heights = [70, 56, 56];
const names_pitch = 11;
const letter_height = 7.4;
const negligible = 0.005;

/** @param {Training} t @param {State} state */
function gains_of(t, state) {
  const { weights, grad_weights, grad_scores } = t.row(state.snapshot, state.head);
  return { weights, grad_weights, gains: Array.from(grad_scores, (x) => (x === 0 ? 0 : -x)) };
}

/** The largest change of a score. @param {ArrayLike<number>} gains */
function largest_change(gains) {
  let most = 0;
  for (let i = 0; i < gains.length; ++i) most = Math.max(most, Math.abs(gains[i]));
  return most;
}

/** The snapshot at which the gradient moves the row of a head most, and how far. @param {Training} t @param {number} head */
function largest_movement(t, head) {
  let best = { at: 0, change: 0 };
  for (let at = 0; at < t.kept.length; ++at) {
    const change = largest_change(t.row(at, head).grad_scores);
    if (change > best.change) best = { at, change };
  }
  return best;
}

/** Where the gradient moves the attention. @param {Training} t @param {number[]} gains @param {number} step @param {{at: number, change: number}} largest */
function movement_text(t, gains, step, largest) {
  const change = largest_change(gains);
  if (change < negligible * largest.change) {
    return `At step ${step}, the gradient hardly moves this row: the largest dS is ${small_measure(change)}, compared with ${small_measure(largest.change)} at step ${t.steps[t.kept[largest.at]]}.`;
  }
  const to = gains.indexOf(Math.max(...gains));
  const from = gains.indexOf(Math.min(...gains));
  if (!(gains[to] > 0)) return `At step ${step}, the gradient moves no weight of this row.`;
  const wanted = t.wanted[t.query].includes(to) ? ", an expected key" : "";
  return `At step ${step}, a gradient step moves weight of ${token_label(t, t.query)} from ${token_label(t, from)} to ${token_label(t, to)}${wanted}.`;
}

/** The row with every number. @param {Training} t @param {State} state */
function glass_table(t, state) {
  const { weights, grad_weights, gains } = gains_of(t, state);
  return el("table", { class: "data" }, el("caption", {}, `${head_label(t, state.head)}, step ${t.steps[t.kept[state.snapshot]]}, query ${token_label(t, t.query)}; weights are rounded to 1/255`),
    el("thead", {}, el("tr", {}, ...["key", "weight P", "dP", "−dS"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...weights.map((weight, key) => el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, `${token_label(t, key)}${t.wanted[t.query].includes(key) ? " expected" : ""}`)),
      el("td", {}, styled_number(weight, { digits: 3, scientific: false })), el("td", {}, small_measure(grad_weights[key])), el("td", {}, small_measure(gains[key]))))));
}

/**
 * @param {Training} t
 */
export function glass_figure(t) {
  const narrow = document.documentElement.clientWidth < 544;
  const visible = t.query + 1;
  const [width, left, right] = [narrow ? 358 : 720, narrow ? 80 : 92, 8];
  const pitch = (width - left - right) / visible;
  const longest = Math.min(12, Math.max(...t.tokens.slice(0, visible).map((text) => shown(text).length)));
  const tilted = longest * letter_height > pitch;
  const names_height = tilted ? letter_height * longest + 14 : 18;
  const tops = [8, 8 + strip_heights[0] + 22, 8 + strip_heights[0] + strip_heights[1] + 44];
  const height = tops[2] + strip_heights[2] + names_height + 8;
  const picture = svg("svg", { class: `chart glass ${narrow ? "narrow" : ""}`.trim(), viewBox: `0 0 ${width} ${height}`, role: "img" });
  const each = Math.max(1, Math.ceil(names_pitch / pitch));
  for (const key of t.wanted[t.query]) picture.append(svg("rect", { class: "wanted-band", x: left + key * pitch, width: pitch, y: 2, height: tops[2] + strip_heights[2] }));

  const rows = ["P", "dP", "−dS"].map((name, n) => {
    const middle = n === 0 ? tops[n] + strip_heights[n] : tops[n] + strip_heights[n] / 2;
    picture.append(svg("line", { class: "zero", x1: left, x2: width - right, y1: middle, y2: middle }),
      svg("text", { class: "strip-name", x: left - 10, y: tops[n] + strip_heights[n] / 2 - 3, "text-anchor": "end" }, name));
    const scale = svg("text", { class: "tick", x: left - 10, y: tops[n] + strip_heights[n] / 2 + 14, "text-anchor": "end" });
    picture.append(scale);
    const bars = Array.from({ length: visible }, (_, key) => {
      const bar = svg("rect", { class: n === 0 ? "weight-bar" : "gradient-bar", x: (left + key * pitch + pitch * 0.12).toFixed(2), width: (pitch * 0.76).toFixed(2) });
      picture.append(bar);
      return bar;
    });
    return { middle, scale, bars, half: n === 0 ? strip_heights[n] : strip_heights[n] / 2 };
  });
  for (let key = 0; key < visible; ++key) {
    const wanted = t.wanted[t.query].includes(key);
    if (key % each !== 0 && !wanted && key !== t.query) continue;
    if (key % each === 0 && each > 1 && [...t.wanted[t.query], t.query].some((other) => other !== key && Math.abs(other - key) < each)) continue;
    const text = shown(t.tokens[key]);
    const at = [left + (key + 0.5) * pitch, tops[2] + strip_heights[2] + 14];
    picture.append(svg("text", { class: key === t.query ? "name query" : wanted ? "name key" : "name", "text-anchor": tilted ? "end" : "middle",
      transform: tilted ? `translate(${(at[0] + 4).toFixed(1)} ${at[1] - 6}) rotate(-90)` : `translate(${at[0].toFixed(1)} ${at[1]})` },
    text.length > 12 ? `${text.slice(0, 11)}…` : text));
  }
  const finding = el("p", { class: "verdict" });
  const details = el("details", { toggle: () => open_table() }, el("summary", { "data-focus": "glass table" }, "The row as a table"));
  let largest = { head: -1, at: 0, change: 0 };
  /** @type {State | null} */
  let last = null;
  const open_table = () => {
    while (details.childElementCount > 1) details.lastElementChild?.remove();
    if (details.open && last) details.append(el("div", { class: "scroll", tabindex: 0 }, glass_table(t, last)));
  };
  return { element: el("div", {}, finding, picture, details), update: (/** @type {State} */ state) => {
    last = state;
    const { weights, grad_weights, gains } = gains_of(t, state);
    const step = t.steps[t.kept[state.snapshot]];
    if (largest.head !== state.head) largest = { head: state.head, ...largest_movement(t, state.head) };
    finding.textContent = movement_text(t, gains, step, largest);
    picture.setAttribute("aria-label", `${finding.textContent} Bars of weights, dP and −dS for ${visible} keys; the table below contains the values`);
    for (const [n, values] of [weights, grad_weights, gains].entries()) {
      const { middle, scale, bars, half } = rows[n];
      const end = n === 0 ? 1 : largest_change(values);
      scale.textContent = n === 0 ? "0 to 1" : end > 0 ? `±${small_measure(end)}` : "0";
      for (const [key, bar] of bars.entries()) {
        const size = end > 0 && Number.isFinite(values[key]) ? Math.abs(values[key]) / end * half : 0;
        bar.setAttribute("y", (values[key] > 0 ? middle - size : middle).toFixed(2));
        bar.setAttribute("height", size.toFixed(2));
        bar.classList.toggle("below", values[key] < 0);
      }
    }
    if (details.open) open_table();
  } };
}

/** Explains the figure. @param {Training} t @param {number} head */
export function glass_note(t, head) {
  return [el("p", {}, "P: the weights. dP: the gradient of the loss with respect to the weights. ", el("span", { class: "equation" }, "dS = P (dP − Σ P dP)"),
    ": the gradient with respect to the scores. A gradient step changes the scores by −dS, so a key gains weight if its dP is below the mean of the row."),
  el("p", {}, `Values of ${head_label(t, head)}. dP and −dS are each scaled to their largest value, which is printed.`, t.wanted[t.query].length > 0 ? " The band marks the expected key." : "")];
}
