// SPDX-License-Identifier: Apache-2.0
//
// The last module of a live page: it opens the view of the address, and follows the address from view to view.
// Read next: views.js, live.js, numbers_view.js.
import { current, hooks } from "../subject.js";
import { draw } from "../page.js";
import { open_sentence } from "./live.js";
import { open_numbers } from "./numbers_view.js";
import { view_of, views_line } from "./views.js";

/** @typedef {import("./views.js").View} View */
/** @typedef {import("./views.js").Shown} Shown */

function begin_page() {
  const has_sentence = current().sentence !== null;
  /** @type {View} */
  const home = has_sentence ? "sentence" : "lesson";
  const sentence = has_sentence ? open_sentence() : null;
  /** @type {Shown | null} */
  let numbers = null;
  /** @type {Shown | null} */
  let shown_now = null;
  const follow = () => {
    const view = view_of(location.hash, home);
    const next = view === "sentence" ? sentence : (numbers ??= open_numbers(has_sentence));
    if (next === sentence && next === shown_now) return false;
    if (next !== shown_now) shown_now?.leave();
    shown_now = next;
    next?.enter(view);
    return true;
  };
  hooks.navigates = follow;
  const view = view_of(location.hash, home);
  if (view === "sentence" || document.readyState !== "loading") {
    follow();
    return;
  }
  // The core is at the end of the file; the file's own lesson is on the page before.
  if (!has_sentence && view === "lesson") {
    hooks.top = () => [views_line(view, has_sentence)];
    draw();
  }
  document.addEventListener("DOMContentLoaded", follow);
}

// In a task of its own: the modules before this one read the data.
setTimeout(begin_page);
