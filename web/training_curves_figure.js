// SPDX-License-Identifier: Apache-2.0
//
// The run over time: four panels on one axis of steps, with the slider's position and the events.
//
//     loss        ──╮         training, held out, probe         ▲ event, click: go there
//     score         ╭──       one line per head, those of events and the chosen one named
//     entropy     ──╯         of the same heads, relative to the visible keys
//     gradient    ─╯╰─        norm
//                   │ slider: press or drag anywhere
//
// The lines are drawn once per head chosen; from snapshot to snapshot only the slider's line moves.
// Read next: training.js, src/explain/training/training_svg.cpp.
import { el, shown, svg } from "./elements.js";
import { compared_score, head_label, head_of_event, kept_at_step, step_position, step_ticks } from "./training.js";

/** @typedef {import("./training.js").Training} Training */
/** @typedef {import("./state.js").State} State */
/** @typedef {{kind: string, label: string, points: [number, number][]}} TimeLine a line of a panel: its class, its name or "", its points */

const panel_gap = 34;
const line_label_pitch = 15;

/** The largest finite value of lines; 1 if there is none. @param {TimeLine[]} lines */
function largest_of(lines) {
  const all = lines.flatMap((line) => line.points.map((point) => point[1])).filter(Number.isFinite);
  return Math.max(...all, 0) || 1;
}

/** 0 and the multiples of 1, 2 or 5 times a power of ten up to `most`: two to four of them. @param {number} most */
function round_ticks(most) {
  const decade = 10 ** (Math.floor(Math.log10(most)) - 1);
  const step = decade * ([1, 2, 5, 10, 20, 50].find((factor) => most / (factor * decade) < 4) ?? 50);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/** @param {number[]} steps @param {any[]} values @returns {[number, number][]} those that were measured */
function points_of(steps, values) {
  return steps.map((step, i) => /** @type {[number, number]} */ ([step, typeof values[i] === "number" ? values[i] : NaN])).filter((_, i) => values[i] !== null);
}

/** The lines of scores: gray for all heads, then events, then the chosen head on top. @param {Training} t @param {number} chosen @param {"score" | "entropy"} what @param {boolean} narrow */
function head_lines(t, chosen, what, narrow) {
  /** @param {number} head @param {import("./training.js").ScoreName} name */
  const points = (head, name) => t.steps.map((step, s) => /** @type {[number, number]} */ ([step, t.score(s, head, name)]));
  const name = what === "entropy" ? "entropy" : compared_score(t);
  const formed = new Set(t.events.map((event) => head_of_event(t, event)));
  /** @type {TimeLine[]} */
  const lines = [];
  for (let head = 0; head < t.num_heads; ++head) if (head !== chosen && !formed.has(head)) lines.push({ kind: "other", label: "", points: points(head, name) });
  for (const head of formed) if (head !== chosen) lines.push({ kind: "formed", label: head_label(t, head), points: points(head, name) });
  lines.push({ kind: "chosen", label: head_label(t, chosen), points: points(chosen, name) });
  if (what === "score" && t.has_pattern) {
    for (const event of t.events.filter((one) => one.kind === "previous_token")) {
      const head = head_of_event(t, event);
      lines.push({ kind: `${head === chosen ? "chosen" : "formed"} previous`, label: `${head_label(t, head)} ${narrow ? "prev." : "previous"}`, points: points(head, "previous") });
    }
  }
  const even = t.uniform(name);
  if (what === "score") lines.push({ kind: "even", label: "uniform", points: [[0, even], [t.last_step, even]] });
  return lines;
}

/**
 * @param {Training} t
 * @param {(change: Partial<State>) => void} set
 */
export function training_curves(t, set) {
  const narrow = document.documentElement.clientWidth < 544;
  const [width, left, right, top] = narrow ? [358, 34, 92, 36] : [720, 40, 118, 36];
  const heights = narrow ? [110, 130, 90, 80] : [110, 140, 90, 80];
  const tops = heights.map((_, i) => top + heights.slice(0, i).reduce((sum, height) => sum + height + panel_gap, 14));
  const bottom = tops[3] + heights[3];
  const x = (/** @type {number} */ step) => left + step_position(t, step) * (width - left - right);

  /** @param {number} chosen @returns {[string, TimeLine[], number | null][]} title, lines, and the end of the scale if it is fixed */
  const panels = (chosen) => [
    [narrow ? "loss" : "loss (nats per target)", [
      { kind: "train", label: "training", points: points_of(t.curve.step, t.curve.loss) },
      { kind: "held", label: "held out", points: points_of(t.curve.step, t.curve.held_out_loss) },
      { kind: "probe", label: "probe", points: points_of(t.steps, t.losses) }], null],
    [narrow && t.has_pattern ? "score" : t.has_pattern ? `score: mean weight on ${shown(t.pattern)}` : "mean weight on the previous token", head_lines(t, chosen, "score", narrow), 1],
    [narrow ? "entropy, 1 = uniform over visible keys" : "entropy of the weights, relative to the visible keys (1: uniform)", head_lines(t, chosen, "entropy", narrow), 1],
    ["gradient norm", [{ kind: "train", label: "", points: points_of(t.curve.step, t.curve.gradient_norm) }], null]];

  const lines_layer = svg("g", {});
  const slider_line = svg("line", { class: "at", y1: top - 16, y2: bottom });
  const slider_name = svg("text", { class: "at-name", y: top - 22, "text-anchor": "middle" });
  const picture = svg("svg", { class: `chart time-chart ${narrow ? "narrow" : ""}`.trim(), viewBox: `0 0 ${width} ${bottom + 40}`, role: "img" }, lines_layer, slider_line, slider_name);

  /** @param {TimeLine} line @param {number} above @param {number} height @param {number} most */
  const path_of = (line, above, height, most) => line.points.map(([step, value], i, all) => (!Number.isFinite(value) ? ""
    : `${i > 0 && Number.isFinite(all[i - 1][1]) ? "L" : "M"} ${x(step).toFixed(1)} ${(above + height * (1 - value / most)).toFixed(1)}`)).join(" ");

  /** @param {number} chosen */
  const draw_lines = (chosen) => {
    lines_layer.replaceChildren();
    const ticks = step_ticks(t, narrow ? 0.13 : 0.07);
    for (const [i, [title, lines, fixed]] of panels(chosen).entries()) {
      const [above, height] = [tops[i], heights[i]];
      const most = fixed ?? largest_of(lines);
      for (const tick of ticks) lines_layer.append(svg("line", { class: "level", x1: x(tick), x2: x(tick), y1: above, y2: above + height }));
      for (const tick of round_ticks(most)) {
        const y = above + height * (1 - tick / most);
        lines_layer.append(svg("line", { class: tick === 0 ? "zero" : "level", x1: left, x2: width - right, y1: y, y2: y }),
          svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, String(tick)));
      }
      lines_layer.append(svg("text", { class: "panel-title", x: left, y: above - 8 }, title));
      /** @type {{text: string, at: number, kind: string}[]} */
      const labels = [];
      for (const line of lines) {
        lines_layer.append(svg("path", { class: `line ${line.kind}`, d: path_of(line, above, height, most) }));
        const last = line.points.findLast((point) => Number.isFinite(point[1]));
        if (line.label !== "" && last) labels.push({ text: line.label, at: above + height * (1 - last[1] / most), kind: line.kind });
      }
      // Names that would overlap are moved apart: downwards, and then up from the bottom.
      labels.sort((a, b) => a.at - b.at);
      for (const [n, label] of labels.entries()) label.at = Math.max(label.at, n > 0 ? labels[n - 1].at + line_label_pitch : above);
      for (let n = labels.length - 1, lowest = above + height; n >= 0; --n, lowest -= line_label_pitch) labels[n].at = Math.min(labels[n].at, lowest);
      for (const { text, at, kind } of labels) lines_layer.append(svg("text", { class: `label ${kind}`, x: width - right + 8, y: (at + 4).toFixed(1) }, text));
    }
    for (const tick of ticks) lines_layer.append(svg("text", { class: "tick", x: x(tick), y: bottom + 16, "text-anchor": "middle" }, String(tick)));
    lines_layer.append(svg("text", { class: "tick", x: (left + width - right) / 2, y: bottom + 34, "text-anchor": "middle" }, "step (logarithmic)"));
    for (const event of t.events) {
      lines_layer.append(svg("line", { class: "event-line", "data-step": event.step, x1: x(event.step), x2: x(event.step), y1: top - 6, y2: bottom }),
        svg("path", { class: "event-mark", d: `M ${x(event.step).toFixed(1)} ${top - 6} l -5 -8 h 10 Z` }));
    }
  };

  /** @param {PointerEvent} event */
  const go = (event) => {
    const box = picture.getBoundingClientRect();
    const at = (((event.clientX - box.left) / box.width) * width - left) / (width - left - right);
    const nearest = t.kept.map((s) => Math.abs(step_position(t, t.steps[s]) - at));
    set({ snapshot: nearest.indexOf(Math.min(...nearest)) });
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    go(event);
  });
  picture.addEventListener("pointermove", (event) => {
    if (picture.hasPointerCapture(event.pointerId)) go(event);
  });

  let drawn = -1;
  return { element: el("div", {}, picture), update: (/** @type {State} */ state) => {
    if (drawn !== state.head) draw_lines(state.head);
    drawn = state.head;
    const step = t.steps[t.kept[state.snapshot]];
    for (const name of ["x1", "x2"]) slider_line.setAttribute(name, x(step).toFixed(1));
    slider_name.setAttribute("x", Math.min(Math.max(x(step), left + 20), width - 60).toFixed(1));
    slider_name.textContent = `step ${step}`;
    picture.setAttribute("aria-label", `loss, scores of all heads, their entropy and the gradient norm over ${t.last_step} steps; the slider is at step ${step}; the table below contains the values`);
  } };
}

/**
 * The events in words; choosing one moves the slider there and shows its head.
 * @param {Training} t
 * @param {(change: Partial<State>) => void} set
 */
export function event_list(t, set) {
  if (t.events.length === 0) {
    const what = t.has_pattern ? "the pattern or to the previous token" : "the previous token";
    return el("p", { class: "events none" }, `No event: no head both attends to ${what} with a score above its threshold and, when removed, raises the loss by more than a tenth of its decrease so far.`);
  }
  return el("ol", { class: "events", "aria-label": "events" }, ...t.events.map((event, i) => {
    const at = event.text.indexOf(":");
    return el("li", {}, el("button", { "data-focus": `event ${i}`, click: () => set({ snapshot: kept_at_step(t, event.step), head: head_of_event(t, event) }) },
      el("span", { class: "event-step" }, `▲ ${shown(event.text.slice(0, at))}`), shown(event.text.slice(at)).replaceAll(" %", "\u00a0%")));
  }));
}
