// SPDX-License-Identifier: Apache-2.0
//
// The page: a lesson, or attention on given arrays, as an article whose figures answer to clicks and keys. One file,
// made by `regard … --html FILE`, that asks no host for anything. The build joins these modules in this order:
//
//     numbers      digits as the terminal prints them         kernel       the library's arithmetic, bit for bit
//     elements     elements of escaped text                   explanation  the data that the file carries
//     unfold       how a cell came about                      attention    one attention, as the figures need it
//     state        what is chosen, and its address            grid         tables that the arrow keys walk
//     work_figure, row_figure, mix_figure, map_figure, steps_figure          the figures
//     page         this one: lays them out, listens to keys
//
// Plain ES modules with types in comments, checked by tsc (web/tsconfig.json); how to change them: docs/page.md.
import { el, shown, word } from "./elements.js";
import { read_explanation } from "./explanation.js";
import { attentions_of, stages, telling_row } from "./attention.js";
import { address_of, read_address } from "./state.js";
import { finding_line, row_caption, row_table, step_marks, step_note } from "./row_figure.js";
import { mix_figure } from "./mix_figure.js";
import { map_figure, map_note } from "./map_figure.js";
import { step_section } from "./steps_figure.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./attention.js").Attention} Attention */

/** @param {string} id */
function data_of(id) {
  return document.getElementById(id)?.textContent ?? "{}";
}

const root = document.documentElement;
const explanation = read_explanation(JSON.parse(data_of("explanation")), JSON.parse(data_of("page")));
const attentions = attentions_of(explanation);

/** The attention that shows most: the document's own, with scores, scale and values. */
function first_attention() {
  return attentions.reduce((best, a, i) => (a.documented > attentions[best].documented ? i : best), 0);
}

/**
 * A whole state from what an address says of one; what does not exist becomes what the page opens with.
 * @param {Partial<State>} wanted
 * @returns {State}
 */
function whole_state(wanted) {
  const a = attentions.find((one) => one.name === wanted.attention) ?? attentions[first_attention()];
  const row = a === undefined ? { head: 0, query: 0 } : telling_row(a, explanation.focus);
  const head = wanted.head !== undefined && a !== undefined && wanted.head < a.num_heads ? wanted.head : row.head;
  const query = wanted.query !== undefined && a !== undefined && a.kept_queries.includes(wanted.query) ? wanted.query : row.query;
  return { attention: a?.name ?? "", head, query, step: wanted.step ?? stages.length - 1, open: wanted.open ?? "", covered: false, own_scale: false };
}

/** @type {State} */
let state = whole_state(read_address(location.hash));

/** @param {Partial<State>} change */
function set(change) {
  state = { ...state, ...change };
  if (!("covered" in change) && !("own_scale" in change)) history.replaceState(null, "", address_of(state));
  draw();
}

/** @param {Attention} a */
function choose_attention(a) {
  const row = telling_row(a, explanation.focus);
  set({ attention: a.name, head: row.head, query: a.kept_queries.includes(state.query) ? state.query : row.query, open: "" });
}

/** @param {Attention} a */
function choosers(a) {
  const line = el("div", { class: "choosers" });
  if (attentions.length > 1) {
    line.append(el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, "Attention "),
      ...attentions.map((one) => el("button", { type: "button", "data-focus": `attention ${one.name}`, "aria-pressed": String(one === a), click: () => choose_attention(one) },
        shown(one.symbol), el("span", { class: "own-name" }, ` ${shown(one.name)}`)))));
  }
  if (a.num_heads > 1) {
    line.append(el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, "Head "),
      ...Array.from({ length: a.num_heads }, (_, h) => el("button", { type: "button", "data-focus": `head ${h}`, "aria-pressed": String(h === state.head), click: () => set({ head: h, open: "" }) }, String(h)))));
  }
  return line;
}

/** The words, large; any of them can become the query. @param {Attention} a */
function sentence(a) {
  const line = el("p", { class: `sentence ${a.kept_queries.length > 24 ? "long" : ""}`, "aria-label": "choose the query" });
  for (const i of a.kept_queries) {
    line.append(el("button", { type: "button", "data-focus": `word ${i}`, class: i === state.query ? "chosen" : null, "aria-pressed": String(i === state.query), click: () => set({ query: i, open: "" }) },
      word(a.query_labels[i], i === state.query ? "query" : "")), " ");
  }
  return line;
}

function article() {
  const main = el("main");
  const a = attentions.find((one) => one.name === state.attention);
  main.append(el("header", {}, el("h1", {}, shown(explanation.title) || "Attention, step by step"),
    explanation.citation === "" ? null : el("p", { class: "citation" }, shown(explanation.citation))));
  if (a !== undefined) {
    main.append(el("section", { class: "figure row-section", "aria-label": "the row as a sum" },
      el("div", { class: "top" }, sentence(a), finding_line(a, state), choosers(a), step_marks(a, state, set)), step_note(a, state),
      el("div", { class: "body" }, el("div", { class: "scroll" }, row_table(a, state, set)), row_caption(a, state))));
    const mixed = mix_figure(a, state, set);
    if (mixed) {
      main.append(el("section", { class: "figure" }, el("h2", {}, "What it becomes"), el("div", { class: "body" }, mixed),
        el("aside", { class: "note" }, el("p", {}, "Pale: the value that each key holds out. Over it: what its weight lets through. Below the line they are added."),
          el("p", {}, "Bars above the line are positive, hollow ones below it negative; all on one scale."))));
    }
    main.append(el("section", { class: "figure" }, el("h2", {}, a.has_heads ? "The whole head" : "Everyone asks"), el("div", { class: "body" }, map_figure(a, state, set)), map_note(a, state)));
  }
  main.append(steps());
  if (explanation.slips.length > 0) {
    main.append(el("section", { class: "slips" }, el("h2", {}, "Where the document slips"), el("ul", {}, ...explanation.slips.map((slip) => el("li", {}, shown(slip))))));
  }
  main.append(foot());
  return main;
}

/** The steps are drawn anew only when something in them changes: they may hold many numbers. */
let steps_drawn = { key: "", element: el("section") };

function steps() {
  const of_figures = /^(row|mix|map) /.test(state.open);
  const key = `${state.head} ${of_figures ? "" : state.open}`;
  if (key !== steps_drawn.key) {
    steps_drawn = { key, element: el("section", { class: "steps" }, el("h2", {}, "Step by step"),
      el("p", { class: "lead" }, "Every number in full. Choose one to see how it came about."),
      ...explanation.steps.map((step) => step_section(explanation, step, state, set))) };
  }
  return steps_drawn.element;
}

let json_open = false;

function foot() {
  const json = data_of("explanation");
  const text = el("pre", { tabindex: 0, "aria-label": "the data as JSON" }, json_open ? json : "");
  const details = el("details", { open: json_open, toggle: () => {
    json_open = details.open;
    if (details.open && text.textContent === "") text.textContent = json;
  } }, el("summary", { "data-focus": "json" }, "The data as JSON"), text);
  return el("footer", {},
    el("p", {}, el("code", {}, el("bdi", {}, shown(explanation.command)))),
    el("p", {}, `Computed by regard ${shown(explanation.version)} (${shown(explanation.instruction_set)}); ${explanation.settings.map(shown).join("; ")}. `,
      "This file carries its numbers, and asks no host for anything."),
    el("p", { class: "keys" }, el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " steps, or cells of a table in focus · ", el("kbd", {}, "Enter"), " unfolds · ",
      el("kbd", {}, "h"), " covers the step's results: predict, then look · ", el("kbd", {}, "p"), " projector size · ", el("kbd", {}, "Esc"), " folds"),
    el("p", { class: "switches" }, el("button", { type: "button", "data-focus": "cover", "aria-pressed": String(state.covered), click: () => set({ covered: !state.covered }) }, "cover results"),
      el("button", { type: "button", "data-focus": "projector", "aria-pressed": String(root.hasAttribute("data-projector")), click: toggle_projector }, "projector size"),
      ...["light", "dark"].map((theme) => el("button", { type: "button", "data-focus": theme, "aria-pressed": String(root.dataset.theme === theme), click: () => choose_theme(theme) }, theme))),
    details);
}

/** Again the same: as the system has it. @param {string} theme */
function choose_theme(theme) {
  if (root.dataset.theme === theme) delete root.dataset.theme;
  else root.dataset.theme = theme;
  draw();
}

function toggle_projector() {
  root.toggleAttribute("data-projector");
  draw();
}

let drawn_step = -1;

function draw() {
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.focus : undefined;
  const place_of_page = window.scrollY;
  root.toggleAttribute("data-arriving", drawn_step >= 0 && drawn_step !== state.step);
  drawn_step = state.step;
  document.querySelector("main")?.remove();
  document.body.append(article());
  if (focused !== undefined) {
    const again = [...document.querySelectorAll("[data-focus]")].find((one) => one instanceof HTMLElement && one.dataset.focus === focused);
    if (again instanceof HTMLElement) {
      if (again.dataset.cell !== undefined) {
        for (const other of again.closest("table")?.querySelectorAll("[data-cell]") ?? []) if (other instanceof HTMLElement) other.tabIndex = -1;
        again.tabIndex = 0;
      }
      again.focus({ preventScroll: true });
    }
  }
  window.scrollTo(0, place_of_page);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const last = stages.length - 1;
  if (event.key === "ArrowRight") set({ step: state.step === last ? 0 : state.step + 1, open: "" });
  else if (event.key === "ArrowLeft" && state.step > 0) set({ step: state.step - 1, open: "" });
  else if (event.key === "h") set({ covered: !state.covered });
  else if (event.key === "p") toggle_projector();
  else if (event.key === "Escape") set({ open: "" });
  else return;
  event.preventDefault();
});
window.addEventListener("hashchange", () => {
  state = { ...whole_state(read_address(location.hash)), covered: state.covered, own_scale: state.own_scale };
  draw();
});
draw();
