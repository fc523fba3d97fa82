// SPDX-License-Identifier: Apache-2.0
//
// The page: a lesson, attention on given arrays, a sentence in a model, or a watched training run, as an article with interactive figures. One
// file, made by `regard … --html FILE`, that makes no network requests. The build joins these modules in this order:
//
//     bytes        of base64                              press        what waits until the pointer is released
//     numbers      digits as the terminal prints them         elements     elements of escaped text
//     explanation  the data that a lesson's file carries
//     expand       how a cell was computed                    attention    one attention, as the figures need it
//     sentence     one sentence in a model, recomputed        arrays       the kernel's numbers over arrays
//     state        what is chosen, and its address            grid         tables with arrow keys
//     derivation_figure, row_figure, mix_figure, map_figure, scale_figure, steps_figure, sentence_figure, evidence_figure, projection_figure,
//     path_figure, heads_figure, comparison_figure, inspection_figure, data_table
//     training     a watched run; training_heads_figure, training_curves_figure, training_glass_figure, training_page
//     subject      what is shown, and what is chosen          article      its parts, from the top
//     page         this one: drawing and keys                 start        draws it; in a live page, live/live.js
//
// Plain ES modules with types in comments, checked by tsc (web/tsconfig.json); how to change them: docs/reference/page.md.
import { el } from "./elements.js";
import { first_stage, stages } from "./attention.js";
import { read_address } from "./state.js";
import { slice } from "./map_figure.js";
import { most_with_arcs } from "./sentence_figure.js";
import { chosen_attention, go_to, hooks, own_title, root, sentence, set, set_training, state, take_subject, training, view, without_row } from "./subject.js";
import { article, forget_steps, steps_drawn, toggle_projector } from "./article.js";
import { toggle_playing, training_key } from "./training_page.js";
import { after_press } from "./press.js";

/** @typedef {import("./state.js").State} State */

let drawn_step = -1;
let drawn_open = "";
/** @typedef {{parts: Generator<HTMLElement | null, void>, at: number, whole: boolean}} Waiting parts of a page that is drawn as a whole, or of one that is drawn in stages */

/** The parts that are drawn in later tasks. @type {Waiting | null} */
let waiting = null;
const quiet = 500;  // milliseconds without a change, after which parts out of view are drawn
let changed_at = 0;

/** @param {string} name */
function focusable(name) {
  const found = [...document.querySelectorAll("[data-focus]")].find((one) => one instanceof HTMLElement && one.dataset.focus === name);
  return found instanceof HTMLElement ? found : null;
}

/** Focuses an element of the name if there is one. @param {string} name */
function focus_again(name) {
  const again = focusable(name);
  if (!again) return;
  if (again.dataset.cell !== undefined) {
    for (const other of again.closest("table")?.querySelectorAll("[data-cell]") ?? []) if (other instanceof HTMLElement) other.tabIndex = -1;
    again.tabIndex = 0;
  }
  again.focus({ preventScroll: true });
}

/** Scrolls only as far as needed to show a number expanded since the last picture, and its derivation. */
function scroll_to_expanded() {
  const expanded = document.querySelector('[data-cell][aria-expanded="true"]');
  const name = expanded instanceof HTMLElement ? expanded.dataset.cell : "";
  if (name !== state.open || name === drawn_open) return;
  drawn_open = name;
  const [box, cell] = [document.querySelector(".expand"), expanded].map((one) => one?.getBoundingClientRect());
  if (!box) return;
  const [top, bottom] = [Math.min(cell?.top ?? box.top, box.top), Math.max(cell?.bottom ?? box.bottom, box.bottom)];
  const margin = 12;
  if (top < 0) window.scrollBy(0, top - margin);
  else if (bottom > window.innerHeight) window.scrollBy(0, Math.min(bottom - window.innerHeight + margin, top - margin));
}

/**
 * Shows other data, read anew. In stages: first the top of the page, which keeps the focus, and each other part in a task
 * of its own.
 * @param {{data: any, text: string, page: any, comparison: any}} of
 * @param {Partial<State>} change
 * @param {boolean} in_stages
 * @param {boolean} keeps_steps the steps of a lesson stay as they are drawn
 */
export function show(of, change, in_stages, keeps_steps = false) {
  take_subject(of, change);
  if (!keeps_steps) forget_steps();
  draw(in_stages);
}

/** The article on the page. A part that was drawn before keeps its element, and with it the focus. */
function main_element() {
  return document.querySelector("main") ?? document.body.appendChild(el("main"));
}

/** @param {HTMLElement} part @param {number} at @param {boolean} patches */
function put(part, at, patches) {
  const main = main_element();
  const old = main.children[at];
  const active = document.activeElement;
  const focused = active instanceof HTMLElement && old?.contains(active) ? active.dataset.focus : undefined;
  if (hooks.place?.(old, part, patches)) {
    if (part === steps_drawn.element && old instanceof HTMLElement) steps_drawn.element = old;
  } else if (old === undefined) {
    main.append(part);
  } else if (old !== part) {
    old.replaceWith(part);
  }
  if (focused !== undefined && !active?.isConnected) focus_again(focused);
}

/** Whether parts wait to be drawn. */
export function is_drawing() {
  return waiting !== null;
}

/** The reader is changing something: parts out of view are drawn after that. */
export function hold() {
  changed_at = performance.now();
}

/** Draws one more of the waiting parts. @param {Waiting} of */
function draw_next(of) {
  if (of !== waiting) return;
  const old = main_element().children[of.at];
  // What is out of view waits until the file is read, and until the key presses pause.
  if (document.readyState === "loading" ? of.at > 2 : performance.now() - changed_at < quiet && old && old.getBoundingClientRect().top > window.innerHeight) {
    draw_later(of, 100);
    return;
  }
  const { value } = of.parts.next();
  if (value) {
    put(value, of.at++, true);
    if (value.matches(".row-section")) report_drawn(of);
    draw_later(of);
  } else if (value === null) {
    draw_later(of);
  } else {
    all_drawn(of);
  }
}

/** @param {Waiting} of @param {number} delay milliseconds */
function draw_later(of, delay = 0) {
  setTimeout(() => after_press(() => draw_next(of)), delay);
}

/** @param {Waiting} of */
function all_drawn(of) {
  waiting = null;
  document.title = state.covered ? "Predict, then look" : own_title;
  while (main_element().children.length > of.at) main_element().lastElementChild?.remove();
}

/** The row is drawn, and what is above it. @param {Waiting} of */
function report_drawn(of) {
  if (of.whole) scroll_to_expanded();
  hooks.drawn?.();
}

/**
 * Draws the page: as a whole, or the top and what is in view, and each other part in a task of its own. A long sentence
 * is not drawn in one task.
 */
export function draw(in_stages = false) {
  const is_long = sentence !== null && sentence.words.length > most_with_arcs;
  const old = [...main_element().children];
  const tops = in_stages && hooks.place && old.length > 2 ? old.map((part) => part.getBoundingClientRect().top) : [];
  const focused = !in_stages && document.activeElement instanceof HTMLElement ? document.activeElement.dataset.focus : undefined;
  const place_of_page = window.scrollY;
  const held = focused === undefined ? undefined : focusable(focused)?.getBoundingClientRect();
  const is_seen = held !== undefined && held.bottom > 0 && held.top < window.innerHeight;
  if (in_stages || is_long) hold();
  if (!in_stages) {
    root.toggleAttribute("data-arriving", drawn_step >= 0 && drawn_step !== state.step);
    drawn_step = state.step;
  }
  const of = waiting = { parts: article(), at: 0, whole: !in_stages };
  const end = performance.now() + slice;
  while (!in_stages || of.at < 2 || tops[of.at] < window.innerHeight) {
    if (is_long && of.at > 0 && performance.now() > end) break;
    const { value, done } = of.parts.next();
    if (value) put(value, of.at++, in_stages || is_long);
    else if (done) all_drawn(of);
    if (done || (in_stages && !value)) break;
  }
  if (!in_stages) {
    view.update_training?.(state);
    if (focused !== undefined) focus_again(focused);
    window.scrollTo(0, place_of_page);
    // The clicked element stays under the pointer, even if something above it collapses.
    const now = focused === undefined || !is_seen ? undefined : focusable(focused)?.getBoundingClientRect();
    if (held && now && Math.abs(now.top - held.top) > 0.5) window.scrollBy(0, now.top - held.top);
  }
  report_drawn(of);
  if (waiting) draw_later(of);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
  const last = stages.length - 1;
  const first = first_stage(chosen_attention());
  const of_training = training ? training_key(training, state, event) : null;
  if (training && of_training === "play") toggle_playing(training, () => state, set_training);
  else if (of_training !== null && of_training !== "play") set_training(of_training);
  if (of_training !== null) event.preventDefault();
  if (without_row && event.key !== "p") return;
  if (event.key === "ArrowRight") set({ step: state.step === last ? first : state.step + 1, open: "" });
  else if (event.key === "ArrowLeft" && state.step > first) set({ step: state.step - 1, open: "" });
  else if (event.key === "h") set({ covered: !state.covered });
  else if (event.key === "p") toggle_projector();
  else if (event.key === "Escape") set({ open: "" });
  else return;
  event.preventDefault();
});
view.draw = draw;
let drawn_width = window.innerWidth;
window.addEventListener("resize", () => requestAnimationFrame(() => {
  if (drawn_width === window.innerWidth) return;
  drawn_width = window.innerWidth;
  draw();
}));
window.addEventListener("hashchange", () => {
  if (hooks.navigates?.()) return;
  go_to(read_address(location.hash));
  draw();
});
