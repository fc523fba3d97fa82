// SPDX-License-Identifier: Apache-2.0
//
// Lessons and own matrices as live documents: an edited number or a switch makes an input, whose steps the core computes,
// and the page becomes its answer by the changes alone.
//
//     lesson ─▶ base ─┐
//     own matrices ───┴▶ + edits + switches = input ─▶ core ─▶ page: the lesson's numbers as titles, the document's beside
//                                                        └ an error ─▶ one line; the last good picture stays
//
// Read next: numbers.js, inputs.js, cells.js, switches.js, own_edits.js, saving.js.
import { el, shown } from "../elements.js";
import { attentions_of, finding_of } from "../attention.js";
import { read_explanation } from "../explanation.js";
import { address_of, read_address } from "../state.js";
import { chosen_attention, current, hooks, root } from "../subject.js";
import { draw, is_drawing, show } from "../page.js";
import { open_answers } from "./answers.js";
import { copy_of, matrix_names, number_in, seeds_of, set_number } from "./inputs.js";
import { command_of, data_of_answer, input_of, is_complete, key_of_place, missing_of, own_numbers, told, transposed_edit } from "./numbers.js";
import { numbers_address, read_numbers_address, without_defaults } from "./numbers_link.js";
import { mark_settings, switches_line } from "./switches.js";
import { make_editable, listen_to_cells } from "./cells.js";
import { mark_changed } from "./marks.js";
import { patch } from "./patch.js";
import { given_tables, save_buttons } from "./given.js";
import { example_matrices, own_panel } from "./own_matrices.js";
import { own_edits } from "./own_edits.js";
import { listen_to_saving } from "./saving.js";
import { patches_of_steps } from "./steps_in_view.js";
import { addresses, lesson_list, static_hooks, views_line } from "./views.js";

/** @typedef {import("./inputs.js").Place} Place */
/** @typedef {import("./numbers.js").Numbers} Numbers */
/** @typedef {import("./numbers_link.js").Edit} Edit */
/** @typedef {import("./switches.js").Switches} Switches */
/** @typedef {import("./views.js").View} View */

const rest_time = 700;  // milliseconds without a change, after which the page speaks

/** @param {boolean} has_sentence */
export function open_numbers(has_sentence) {
  /** @type {View} */
  let view = "lessons";
  let active = false;
  /** @type {Numbers | null} */
  let now = null;
  /** @type {Numbers | null} */
  let kept_matrices = null;
  /** The edits and switches of the last picture. @type {{edits: Map<string, Edit>, chosen: Switches}} */
  let good = { edits: new Map(), chosen: {} };
  /** @type {{name: string, title: string}[]} */
  let lessons = [];
  /** A later request makes earlier ones void. */
  let turn = 0;
  let num_files = 0;
  /** The lesson that is being opened. */
  let opening = "";
  let resting = 0;
  let recording = 0;
  let spoken_about = "";

  const message = el("p", { class: "live-message", role: "alert", hidden: true });
  const speaker = el("p", { class: "spoken", "aria-live": "polite", role: "status" });
  document.body.append(message, speaker);
  const changes = el("p", { class: "changes" });
  const terminal = el("p", { class: "terminal caption" });
  let settings = el("p");
  const controls = el("section", { class: "controls", "aria-label": "settings" });
  controls.replaceChildren(settings, changes, terminal);
  const own = own_edits({ base: () => now?.base ?? {}, change: change_matrices, say: (text) => panel.say(text), wrong });
  /** @type {ReturnType<typeof own_panel>} */
  const panel = own_panel({ wrong, right, read_file, add: own.add, tokens: own.tokens, replace: (input) => {
    if (now) now.chosen = {};
    change_matrices(input);
  } });

  /** @param {string} text */
  function wrong(text) {
    message.textContent = shown(text);
    message.hidden = false;
  }
  function right() {
    message.hidden = true;
    message.textContent = "";
  }

  const answers = open_answers({ requests: [], with_model: false, ready: () => undefined, gone: (reason) => {
    wrong(`This page cannot compute (${reason}). All figures work as on any other page of regard.`);
  } });

  // The input and its picture.

  const idle = () => document.querySelector("main")?.removeAttribute("aria-busy");

  /** Asks for the picture of the numbers as they are now. */
  function compute() {
    if (!now) return;
    const of = now;
    const mine = ++turn;
    document.querySelector("main")?.setAttribute("aria-busy", "true");
    const [edits, chosen] = [new Map(of.edits), { ...of.chosen }];
    refresh();
    const input = input_of(of);
    if (of.lesson === "" && !is_complete(input)) return incomplete(of, input);
    if (of.own_answer && edits.size === 0 && Object.keys(chosen).every((key) => key === "layout")) return arrived(of, input, of.own_answer, { edits, chosen });
    answers.ask({ kind: "numbers", request: { do: "explain", lesson: of.lesson, command: command_of(of) }, payload: JSON.stringify(input), raw: true, then: (answer) => {
      // An older answer is drawn only until the latest comes, which it has if the lesson's own was taken.
      if (of === now && active && (mine === turn || answers.pending("numbers"))) arrived(of, input, data_of_answer(answer), { edits, chosen });
    }, failed: (reason) => {
      if (of !== now || mine !== turn) return;
      wrong(told(reason));
      if (of.lesson === "") return incomplete(of, input);
      idle();
      [of.edits, of.chosen] = [new Map(good.edits), { ...good.chosen }];
      renew_settings();
      refresh();
    } });
  }

  /** @param {Numbers} of @param {any} input @param {any} answer @param {typeof good} made */
  function arrived(of, input, answer, made) {
    const first = of.drawn === null;
    of.drawn = input;
    of.stale = false;
    good = made;
    root.classList.remove("stale");
    if (first) show(answer, { attention: undefined, head: undefined, query: undefined, step: 0, open: "", ...read_address(location.hash) }, false);
    else steps.renew(() => show(answer, {}, true, true));
    clearTimeout(resting);
    resting = window.setTimeout(speak, rest_time);
    record();
  }

  /** Own matrices that cannot be computed yet. @param {Numbers} of @param {any} input */
  function incomplete(of, input) {
    of.stale = of.drawn !== null;
    root.classList.toggle("stale", of.stale);
    if (!of.stale) of.drawn = null;
    draw();
    record();
    idle();
    if (!is_complete(input)) panel.say(missing_of(input));
  }

  /** After a pause: one sentence for screen readers. */
  function speak() {
    if (is_drawing() || steps.are_waiting() || answers.pending("numbers")) {
      resting = window.setTimeout(speak, 100);
      return;
    }
    idle();
    const { state } = current();
    const a = chosen_attention();
    const finding = a && !state.covered ? `${finding_of(a, state.head, state.query)}.` : "";
    const text = [spoken_about, finding].filter((part) => part !== "").join(" ");
    spoken_about = "";
    if (now?.drawn && active) speaker.textContent = shown(text);
  }

  // The address.

  function record() {
    clearTimeout(recording);
    recording = window.setTimeout(() => {
      if (!active) return;
      history.replaceState(null, "", address());
    }, 300);
  }
  function address() {
    if (view === "lessons" || !now) return "#lessons";
    return numbers_address(now.drawn ? address_of(current().state) : "", { lesson: now.lesson, base: now.base, edits: [...now.edits.values()], switches: now.chosen });
  }

  // What the reader does.

  const given = {
    /** @param {Place} place */
    number: (place) => {
      if (!now) return null;
      return now.edits.get(key_of_place(place))?.x ?? number_in(now.base, place);
    },
    /** @param {Place} place */
    own: (place) => (now && now.lesson !== "" ? number_in(now.base, place) : null),
    /** @param {Place} place @param {number} x */
    edit: (place, x) => {
      if (!now) return;
      if (now.lesson === "") {
        now.base = { ...now.base, [place.name]: copy_of(now.base[place.name]) };
        set_number(now.base, place, x);
      } else if (Object.is(number_in(now.base, place), x)) {
        now.edits.delete(key_of_place(place));
      } else {
        now.edits.set(key_of_place(place), { place, x });
      }
      spoken_about = `${place.name}, row ${place.row}, column ${place.column}: ${x}.`;
      compute();
    },
    wrong, right };
  const cells = listen_to_cells(() => (active && now ? given : null));

  /** @param {string} key @param {string} value */
  function choose(key, value) {
    if (!now) return;
    const { layout, ...others } = now.chosen;
    if (now.lesson !== "" && key === "layout") return open_lesson(now.lesson, { edits: [...now.edits.values()].map(transposed_edit), switches: { ...others, layout: value } }, true);
    const changed = without_defaults(now.base, { ...now.chosen, [key]: value });
    now.chosen = now.lesson !== "" && layout ? { ...changed, layout } : changed;
    compute();
  }
  function reset() {
    if (!now) return;
    right();
    const layout = now.chosen.layout;
    now.edits.clear();
    now.chosen = {};
    if (layout && now.lesson !== "") return open_lesson(now.lesson, { edits: [], switches: {} }, true);
    renew_settings();
    compute();
  }
  function renew_settings() {
    if (!now) return;
    settings = switches_line(now.base, now.chosen, { choose, wrong, right });
    controls.replaceChildren(settings, changes, terminal);
  }

  /** What differs from the document, and the command for a terminal. */
  function refresh() {
    if (!now) return;
    const of = now;
    const count = of.edits.size + Object.keys(of.chosen).length;
    const texts = [of.edits.size > 0 ? `${of.edits.size} ${of.edits.size === 1 ? "number" : "numbers"} changed` : "", count > of.edits.size ? `${count - of.edits.size} ${count - of.edits.size === 1 ? "setting" : "settings"} changed` : ""].filter((text) => text !== "");
    changes.replaceChildren(...(of.lesson === "" ? [] : count === 0 ? ["Click a given number to change it, or drag it sideways. Every later step is recomputed."]
      : [`${texts.join(", ")}. `, el("button", { class: "reset", "data-focus": "reset", click: reset }, "back to the document"), " The document’s text refers to its original numbers."]));
    const file = of.lesson === "" ? "matrices" : of.lesson;
    terminal.replaceChildren("In a terminal: ", el("code", {}, shown(command_of(of))), " ", of.lesson === "" || of.edits.size > 0 ? el("button", { "data-focus": "save input", "data-save": "json input" }, `save ${file}.json`) : "");
    mark_settings(settings, of.chosen);
  }

  // Drawing.

  const own_header = el("header", { class: "own-header" }, el("h1", {}, "Your matrices"), panel.element);

  const top = () => {
    const parts = [views_line(view, has_sentence)];
    if (view === "lesson" && lessons.length > 0) {
      parts[0].append(el("p", { class: "lesson-links" }, ...lessons.flatMap(({ name, title }) => [
        el("a", { href: `#lesson=${encodeURIComponent(name)}`, title, "data-focus": `lesson ${name}`, "aria-current": name === now?.lesson ? "page" : null }, name), " "])));
    }
    if (view === "matrices" && now) parts.push(own_header, given_part(now));
    return parts;
  };
  /** @param {Numbers} of */
  function given_part(of) {
    const is_own = of.lesson === "";
    return el("section", { class: "figure given-section" }, el("h2", {}, is_own ? "The matrices" : "The given numbers"), el("div", { class: "body" },
      given_tables(is_own ? of.base : of.drawn, current().state, { is_own, ...own, rename: (name, to) => own.rename(name, to) || draw() }),
      el("p", { class: "caption" }, is_own ? "Click a number to change it, or drag it sideways. The whole input: " : "The whole input: ", save_buttons("input", "the whole input"))));
  }
  /** @param {Element | undefined} old @param {HTMLElement} part @param {boolean} patches */
  function place(old, part, patches) {
    if (old === part) return true;
    const { explanation, attentions, state } = current();
    if (now?.drawn || view === "matrices") make_editable(part, given);
    if (now?.drawn && explanation) {
      if (now.lesson !== "") mark_changed(part, { explanation, attentions }, now.own, state);
      for (const heading of part.matches(".step") ? part.querySelectorAll("h3") : part.querySelectorAll(".step > h3")) {
        if (!heading.querySelector(".saving")) heading.append(" ", save_buttons(`step ${heading.id.replace("step-", "")}`, `the result of step ${heading.id.replace("step-", "")}`));
      }
    }
    return patches && old !== undefined && patch(old, part);
  }
  const steps = patches_of_steps(place, () => cells.restore());
  const own_hooks = { top, place, record: () => record(), drawn: () => cells.restore(),
    whole: () => (view === "lessons" ? lesson_list(lessons) : now?.drawn || opening !== "" ? [] : [el("p", { class: "caption waiting" }, view === "matrices" ? "" : "Computing …")]),
    controls: () => [controls],
    given: () => (now?.drawn && now.lesson !== "" && matrix_names(now.base).length + seeds_of(now.base).length > 0 ? [given_part(now)] : []) };

  // Lessons.

  /**
   * @param {string} name
   * @param {{edits: Edit[], switches: Switches}} link
   * @param {boolean} [again] the same lesson, in another layout
   */
  function open_lesson(name, link, again = false) {
    const mine = ++turn;
    const layout = link.switches.layout;
    answers.ask({ kind: "numbers", request: { do: "lesson", name, ...(layout ? { layout } : {}), command: `regard lesson ${name}${layout ? ` --layout ${layout}` : ""}` }, raw: true, then: (answer) => {
      if (mine !== turn || !active) return;
      const own_answer = data_of_answer(answer);
      const explanation = read_explanation(own_answer.data, own_answer.page);
      const base = own_answer.rest.input;
      const drawn = again ? now?.drawn : null;
      const { layout: _, ...others } = link.switches;
      now = { lesson: name, base, edits: new Map(), chosen: without_defaults(base, others), own_answer, own: { explanation, attentions: attentions_of(explanation) }, drawn: null, stale: false };
      if (layout && layout !== own_answer.rest.own_layout) now.chosen.layout = layout;
      opening = "";
      for (const edit of link.edits) if (number_in(base, edit.place) !== null && !Object.is(number_in(base, edit.place), edit.x)) now.edits.set(key_of_place(edit.place), edit);
      if (again && drawn) history.replaceState(null, "", numbers_address(address_of(current().state), { lesson: name, base, edits: link.edits, switches: now.chosen }));
      good = { edits: new Map(), chosen: now.chosen.layout ? { layout: now.chosen.layout } : {} };
      renew_settings();
      compute();
    }, failed: (reason) => {
      if (mine !== turn) return;
      wrong(told(reason));
      location.hash = "#lessons";
    } });
  }
  // Own matrices.

  /** The example has no names that a first matrix must respect. @param {any} base */
  function name_panel(base) {
    panel.names(base === example_matrices ? [] : matrix_names(base), base.tokens ?? []);
  }
  /** @param {any} base */
  function change_matrices(base) {
    if (!now || now.lesson !== "") return;
    now.base = base;
    cells.forget();
    right();
    renew_settings();
    const missing = missing_of(base);
    panel.say(missing);
    name_panel(base);
    compute();
  }
  /** Reads a file by the library's code. @param {"csv" | "npy"} format @param {string} name @param {string | Uint8Array} content @param {(matrix: any) => void} then */
  function read_file(format, name, content, then) {
    answers.ask({ kind: `file ${++num_files}`, request: { do: format, name }, payload: content, then: (answer) => then(answer.rest.matrix), failed: (reason) => wrong(told(reason)) });
  }
  function open_matrices() {
    const link = read_numbers_address(location.hash);
    if (link.input || !kept_matrices) {
      kept_matrices = own_numbers(link.input ?? example_matrices, {});
      kept_matrices.chosen = without_defaults(kept_matrices.base, link.switches);
    }
    now = kept_matrices;
    now.drawn = null;
    renew_settings();
    name_panel(now.base);
    panel.say(now.base === example_matrices ? "These matrices are an example; your first matrix will replace them." : missing_of(now.base));
    refresh();
    draw();
    compute();
  }

  listen_to_saving({ shown: () => (active ? now : null), ask: answers.ask, wrong });

  // Coming and going.

  answers.ask({ kind: "lessons", request: { do: "lessons" }, then: (answer) => {
    lessons = answer.rest.lessons;
    if (active && (view === "lessons" || now?.drawn)) draw();
  }, failed: () => undefined });

  return {
    /** @param {View} wanted */
    enter: (wanted) => {
      const link = read_numbers_address(location.hash);
      view = wanted;
      Object.assign(hooks, static_hooks, own_hooks, { navigates: hooks.navigates });
      active = true;
      right();
      root.classList.remove("stale");
      if (view === "matrices") return open_matrices();
      if (view === "lessons") {
        now = null;
        ++turn;
        document.title = "Your numbers";
        return draw();
      }
      const { data } = current();
      const name = link.lesson || data.lesson || "three-words";
      // The lesson of the file is on the page before the core runs.
      if (now?.lesson !== name) {
        now = null;
        opening = data.lesson === name ? name : "";
        draw();
      }
      open_lesson(name, link);
    },
    leave: () => {
      active = false;
      steps.stop();
      if (view === "matrices") addresses.matrices = address();
      clearTimeout(recording);
      clearTimeout(resting);
      right();
      cells.forget();
      root.classList.remove("stale");
      ++turn;
      opening = "";
      now = null;
    } };
}
