// SPDX-License-Identifier: Apache-2.0
//
// What a live page shows, by its address: a sentence, the list of lessons, a lesson, or own matrices; and the line of links
// between them.
//
//     #attention=…&text=…        #lessons        #lesson=three-words&cell=X,0,1,2.5&scale=sqrt        #matrices={…}
//
// Read next: begin.js.
import { el } from "../elements.js";
import { hooks } from "../subject.js";

/** @typedef {"sentence" | "lessons" | "lesson" | "matrices"} View */
/** @typedef {{enter: (view: View) => void, leave: () => void}} Shown */

/** What a page without a live part does. */
export const static_hooks = { ...hooks };

/** The address of each view when it was left. @type {Record<string, string>} */
export const addresses = { sentence: "#", lessons: "#lessons", matrices: "#matrices" };

/** @param {string} hash @param {View} home @returns {View} */
export function view_of(hash, home) {
  const parts = new URLSearchParams(hash.slice(1));
  if (parts.has("lesson")) return "lesson";
  return parts.has("lessons") ? "lessons" : parts.has("matrices") ? "matrices" : home;
}

/** @param {{name: string, title: string}[]} lessons */
export function lesson_list(lessons) {
  return [el("header", {}, el("h1", {}, "Change a number, and every later step is recomputed"),
    el("p", { class: "citation" }, "Each lesson reproduces the computation in a document, with its matrices. Every given number can be changed.")),
  el("ul", { class: "lesson-list" }, ...lessons.map(({ name, title }) => el("li", {}, el("a", { href: `#lesson=${encodeURIComponent(name)}`, "data-focus": `lesson ${name}` }, name), el("span", {}, ` ${title}`))),
    el("li", {}, el("a", { href: addresses.matrices, "data-focus": "lesson own" }, "your matrices"), el("span", {}, " Paste a table, or open CSV, NPY or JSON files")))];
}

/** @param {View} view @param {boolean} has_sentence */
export function views_line(view, has_sentence) {
  /** @param {string} name @param {string} text */
  const link = (name, text) => el("a", { href: addresses[name], "data-focus": `view ${name}`, "aria-current": name === view || (name === "lessons" && view === "lesson") ? "page" : null }, text);
  return el("nav", { class: "views", "aria-label": "what is computed" }, has_sentence ? link("sentence", "your sentence") : null, link("lessons", "your numbers"), link("matrices", "your matrices"));
}
