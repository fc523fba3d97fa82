// SPDX-License-Identifier: Apache-2.0
//
// The page of a watched run: the findings; a slider over the snapshots, which stays in view; all heads and one enlarged;
// the curves with the events; a table of all heads; one row under the glass.
//
//     set({ snapshot }) ─▶ update of each part: no element is created, so that the slider moves at the screen's rate
//
// Read next: training.js, page.js.
import { styled_number, two_decimals } from "./numbers.js";
import { el, prose, shown } from "./elements.js";
import { compared_score, head_label, kept_at_step, measured } from "./training.js";
import { enlarged_map, is_stacked, small_maps } from "./training_heads_figure.js";
import { event_list, training_curves } from "./training_curves_figure.js";
import { glass_figure, glass_note } from "./training_glass_figure.js";

/** @typedef {import("./training.js").Training} Training */
/** @typedef {import("./state.js").State} State */

const playing_rate = 12;
const reduced_rate = 1;

/** The playback: it survives that the page is drawn again. */
const playing = { timer: 0 };

/** @param {Training} t @param {() => State} current @param {(change: Partial<State>) => void} set */
export function toggle_playing(t, current, set) {
  if (playing.timer !== 0) {
    clearInterval(playing.timer);
    playing.timer = 0;
    set({});
    return;
  }
  const last = t.kept.length - 1;
  if (current().snapshot === last) set({ snapshot: 0 });
  const rate = matchMedia("(prefers-reduced-motion: reduce)").matches ? reduced_rate : playing_rate;
  playing.timer = window.setInterval(() => {
    if (current().snapshot < last) set({ snapshot: current().snapshot + 1 });
    if (current().snapshot >= last && playing.timer !== 0) toggle_playing(t, current, set);
  }, 1000 / rate);
  set({});
}

/** The change that a key makes, or null. The slider itself handles its own keys, except the space bar. @param {Training} t @param {State} state @param {KeyboardEvent} event */
export function training_key(t, state, event) {
  const on_slider = event.target instanceof HTMLInputElement;
  if (event.key === " ") return event.target instanceof HTMLElement && event.target.closest("button, summary, a") ? null : "play";
  if (on_slider) return null;
  const last = t.kept.length - 1;
  if (event.key === "ArrowRight") return { snapshot: Math.min(last, state.snapshot + 1) };
  if (event.key === "ArrowLeft") return { snapshot: Math.max(0, state.snapshot - 1) };
  return null;
}

/** @param {Training} t @param {() => State} current @param {(change: Partial<State>) => void} set */
function slider_bar(t, current, set) {
  const last = t.kept.length - 1;
  const slider = el("input", { type: "range", min: 0, max: last, step: 1, "data-focus": "slider", "aria-label": "snapshot", input: () => set({ snapshot: Number(slider.value) }) });
  const play = el("button", { class: "play", "data-focus": "play", click: () => toggle_playing(t, current, set) });
  const readout = el("p", { class: "slider-readout" });
  // Positions of the thumb's middle: it does not leave the track.
  const place = (/** @type {HTMLElement} */ element, /** @type {number} */ at) => element.style.setProperty("--at", String(last === 0 ? 0 : at / last));
  const marks = el("div", { class: "slider-marks", "aria-hidden": "true" });
  const named = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * last)).filter((at, i, all) => all.indexOf(at) === i);
  for (const at of named) {
    const name = el("span", { class: "slider-step" }, String(t.steps[t.kept[at]]));
    place(name, at);
    marks.append(name);
  }
  for (const event of t.events) {
    const mark = el("span", { class: "slider-event" }, "▲");
    place(mark, kept_at_step(t, event.step));
    marks.append(mark);
  }
  const held_out = t.curve.step.map((step, i) => ({ step, loss: t.curve.held_out_loss[i] })).filter((one) => one.loss !== null);
  const element = el("div", { class: "slider-bar" }, play, el("div", { class: "slider-track" }, slider, marks), readout);
  return { element, update: (/** @type {State} */ state) => {
    const snapshot = t.kept[state.snapshot];
    const step = t.steps[snapshot];
    slider.value = String(state.snapshot);
    slider.setAttribute("aria-valuetext", `step ${step}, loss ${measured(t.losses[snapshot])}, score of ${head_label(t, state.head)} ${measured(t.score(snapshot, state.head, compared_score(t)))}`);
    play.textContent = playing.timer === 0 ? "▶ play" : "■ stop";
    const other = held_out.findLast((one) => one.step <= step);
    readout.replaceChildren(el("b", {}, `step ${step}`), ` · loss ${measured(t.losses[snapshot])}`, other ? ` · held out ${measured(other.loss)}${other.step === step ? "" : ` at ${other.step}`}` : "");
  } };
}

/** All heads at the snapshot, with what the loss is without each. @param {Training} t @param {(change: Partial<State>) => void} set */
function head_scores_table(t, set) {
  let most = 0;
  for (let s = 0; s < t.steps.length; ++s) for (let head = 0; head < t.num_heads; ++head) most = Math.max(most, Math.abs(t.score(s, head, "ablation")) || 0);
  /** @type {[import("./training.js").ScoreName, string][]} */
  const columns = [...(t.has_pattern ? [/** @type {[import("./training.js").ScoreName, string]} */ (["pattern", "score"])] : []), ["previous", "previous token"], ["sink", "first token"], ["entropy", "entropy"]];
  /** Columns that a narrow page does not show. @param {string} name */
  const wide_only = (name) => (name === "sink" || name === "entropy" ? "wide-only" : null);
  const rows = Array.from({ length: t.num_heads }, (_, head) => {
    const cells = columns.map(([name]) => el("td", { class: wide_only(name) }));
    const without = el("td", {});
    const bar = el("div", { class: "bar-fill" });
    const button = el("button", { "data-focus": `head row ${head}`, "aria-label": `layer ${Math.floor(head / t.heads)}, head ${head % t.heads}`, click: () => set({ head }) }, head_label(t, head));
    const row = el("tr", {}, el("th", { scope: "row" }, button), ...cells, without, el("td", { class: "bar", "aria-hidden": "true" }, bar));
    return { row, button, cells, without, bar };
  });
  const caption = el("caption", {});
  const table = el("table", { class: "head-scores" }, caption, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "head"), ...columns.map(([name, title]) => el("th", { scope: "col", class: wide_only(name) }, title)),
    el("th", { scope: "col" }, "without it"), el("th", { scope: "col", class: "bar-scale" }, `loss without it, 0 to +${styled_number(most, two_decimals)}`))),
  el("tbody", {}, ...rows.map((one) => one.row)),
  el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "uniform"), ...columns.map(([name]) => el("td", { class: wide_only(name) }, styled_number(t.uniform(name), two_decimals))), el("td", {}), el("td", {}))));
  return { element: el("div", { class: "scroll head-scores-frame", tabindex: 0 }, table), update: (/** @type {State} */ state) => {
    const snapshot = t.kept[state.snapshot];
    caption.textContent = `All heads at step ${t.steps[snapshot]}`;
    for (const [head, one] of rows.entries()) {
      for (const [i, [name]] of columns.entries()) one.cells[i].textContent = measured(t.score(snapshot, head, name));
      const more = t.score(snapshot, head, "ablation");
      one.without.textContent = `${more >= 0.005 ? "+" : ""}${measured(more)}`;
      one.bar.style.setProperty("--share", String(most > 0 && Number.isFinite(more) ? Math.abs(more) / most : 0));
      one.bar.classList.toggle("below", more < 0);
      one.row.classList.toggle("chosen", head === state.head);
      one.button.setAttribute("aria-pressed", String(head === state.head));
    }
  } };
}

/** What is left out of the file, if anything is. @param {Training} t */
function omissions(t) {
  const size = `${styled_number(t.max_bytes / 1e6, { digits: 0, scientific: false })}\u00a0MB`;
  if (!t.has_weights) return el("p", { class: "warning" }, `Note: the weights of ${t.num_heads} heads on ${t.tokens.length} tokens would take more than ${size} for two snapshots. This page contains only scores.`);
  const missing = t.steps.length - t.kept.length;
  return missing === 0 ? null : el("p", { class: "warning" }, `Note: ${missing} of ${t.steps.length} snapshots are left out of the maps, so that the page stays below ${size}. The curves include all of them.`);
}

/**
 * The parts of the article, and what brings them up to date with a state.
 * @param {Training} t
 * @param {() => State} current
 * @param {(change: Partial<State>) => void} set
 * @returns {{parts: (Node | null)[], update: (state: State) => void}}
 */
export function training_article(t, current, set) {
  const [finding, ...rest] = t.findings;
  const slider = slider_bar(t, current, set);
  const maps = small_maps(t, set);
  const table = head_scores_table(t, set);
  const curves = training_curves(t, set);
  const enlarged = t.has_weights ? enlarged_map(t) : null;
  const glass = t.has_weights && t.query >= 0 ? glass_figure(t) : null;
  const glass_aside = el("aside", { class: "note" });
  const scale_note = el("p", { class: "caption" }, "Queries down, keys across, on the same sequence at every step. Color: the square root of the weight, from 0 to 1 in every map.",
    t.has_pattern ? ` Below each map: its score, the mean weight on ${shown(t.pattern)} (uniform: ${styled_number(t.uniform("pattern"), two_decimals)}).` : ` Below each map: its mean weight on the previous token (uniform: ${styled_number(t.uniform("previous"), two_decimals)}).`,
    t.data.probe.num_sequences > 1 ? ` Scores and losses are means over ${t.data.probe.num_sequences} sequences; the maps show the first.` : "");
  const parts = [
    el("header", { class: "sentence-header" }, el("p", { class: "citation" }, prose([t.data.task ?? t.data.text, t.data.shows].filter(Boolean).join(" · "))),
      el("h1", { class: "finding" }, prose(`${finding}.`)), el("p", { class: "selection" }, prose(rest.map((text) => `${text}.`).join(" "))), omissions(t)),
    slider.element,
    el("section", { class: "figure training-maps" }, el("h2", { class: "spoken" }, "All heads at this snapshot"), el("div", { class: `maps-and-head ${is_stacked(t) ? "stacked" : ""}`.trim() }, el("div", { class: "all-maps" }, maps.element, scale_note), enlarged?.element ?? null)),
    el("section", { class: "figure curves" }, el("h2", {}, "Training curves"), el("div", { class: "body" }, curves.element,
      t.curve.thinned ? el("p", { class: "caption" }, "The training loss and the gradient norm are means over a few steps each.") : null),
    el("aside", { class: "note" }, event_list(t, set))),
    el("section", { class: "figure" }, el("h2", {}, "Scores of each head, and the loss without it"), el("div", { class: "body" }, table.element),
      el("aside", { class: "note" }, el("p", {}, "Score, previous token and first token: the mean weight on these keys. Entropy: 0 if all weight is on one key, 1 if it is uniform over the visible keys."),
        el("p", {}, "Without it: the increase in the loss of the probe when the head’s output is replaced by zeros; all bars share one scale over the whole run. Hollow bars: the loss decreases."))),
    glass ? el("section", { class: "figure glass-section" }, el("h2", {}, "One row in detail"), el("div", { class: "body" }, glass.element), glass_aside) : null];
  let noted = -1;
  return { parts, update: (state) => {
    for (const part of [slider, maps, enlarged, curves, table, glass]) part?.update(state);
    if (glass && noted !== state.head) glass_aside.replaceChildren(...glass_note(t, state.head));
    noted = state.head;
  } };
}
