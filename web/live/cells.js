// SPDX-License-Identifier: Apache-2.0
//
// Given numbers that can be edited, wherever the page shows them: a spin button in its cell.
//
//     type, Enter, F2, click   an input in the cell; Enter keeps the number, Escape takes it back
//     ↑ ↓                      a step of the last decimal, ten with Shift; ← → go to the next number
//     drag to the side         likewise, a step every few pixels
//
// Read next: document.js, inputs.js.
import { el, shown } from "../elements.js";
import { root } from "../subject.js";
import { decimals_of, parse_typed, stepped, typed_text } from "./inputs.js";

/** @typedef {import("./inputs.js").Place} Place */

/**
 * What the cells belong to.
 * @typedef {object} Given
 * @property {(place: Place) => number | null} number in a place, or null if there is none
 * @property {(place: Place) => number | null} own the document's number, or null if it has none
 * @property {(place: Place, x: number) => void} edit
 * @property {(text: string) => void} wrong tells what is wrong with a number
 * @property {() => void} right takes that back
 */

const pixels_of_step = 6;
const pixels_of_drag = 4;

/** The place of a cell. @param {Element} cell @returns {Place | null} */
function place_of(cell) {
  const found = /^(\d+) (\d+) (\d+) (.+)$/s.exec(cell.getAttribute("data-given") ?? "");
  return found ? { head: Number(found[1]), row: Number(found[2]), column: Number(found[3]), name: found[4] } : null;
}

/**
 * Makes the given numbers of a part editable.
 * @param {Element} part
 * @param {Given} given
 */
export function make_editable(part, given) {
  /** @type {Set<Element>} */
  const tables = new Set();
  for (const cell of part.querySelectorAll("td[data-given]")) {
    const place = place_of(cell);
    const x = place && given.number(place);
    const text = cell.querySelector(".number");
    const table = cell.closest("table");
    if (place === null || x === null || !text || !table || cell.querySelector(".given")) continue;
    for (const name of ["data-cell", "data-focus", "aria-expanded", "tabindex"]) cell.removeAttribute(name);
    const across = [...(cell.parentElement?.querySelectorAll("td[data-given]") ?? [])].indexOf(cell);
    const heads = [table.querySelectorAll("thead th")[across]?.textContent ?? String(place.column), cell.parentElement?.querySelector("th")?.textContent ?? String(place.row)];
    const span = el("span", { class: "given", role: "spinbutton", tabindex: tables.has(table) ? -1 : 0, "data-focus": `given ${cell.getAttribute("data-place")} ${cell.getAttribute("data-given")}`,
      "aria-label": `${shown(place.name)}, row ${heads[1]}, column ${heads[0]}`, "aria-valuenow": Number.isFinite(x) ? x : null, "aria-valuetext": typed_text(x) });
    tables.add(table);
    text.replaceWith(span);
    span.append(text);
    const own = given.own(place);
    if (own !== null && !Object.is(own, x)) {
      cell.classList.add("edited");
      if (!cell.querySelector(".document")) cell.append(el("small", { class: "document", title: "the document’s value" }, `doc ${typed_text(own).replace("-", "−")}`));
    }
  }
}

/**
 * Handles the keyboard, pointer and input events of every editable cell.
 * @param {() => Given | null} current
 */
export function listen_to_cells(current) {
  /** The decimals of the numbers that were edited. @type {Map<string, number>} */
  const decimals = new Map();
  /** The number being typed, and its value before. @type {{input: HTMLInputElement, cell: Element, place: Place, before: number, focus: string} | null} */
  let editor = null;
  const edited_now = () => editor;
  /** @type {{span: HTMLElement, place: Place, begun: number, x: number, moved: boolean} | null} */
  let drag = null;

  /** @param {Place} place */
  const key_of = (place) => `${place.head} ${place.row} ${place.column} ${place.name}`;
  /** @param {Place} place @param {number} x */
  const decimals_at = (place, x) => {
    const most = Math.max(decimals.get(key_of(place)) ?? 0, decimals_of(x));
    decimals.set(key_of(place), most);
    return most;
  };
  /** @param {EventTarget | null} target */
  const span_of = (target) => {
    const found = target instanceof Element ? target.closest(".given") : null;
    return found instanceof HTMLElement ? found : null;
  };
  /** The spin button of a place that was drawn again. @param {string} focus */
  const find = (focus) => {
    const found = [...document.querySelectorAll(".given")].find((one) => one.getAttribute("data-focus") === focus);
    return found instanceof HTMLElement ? found : null;
  };

  /** @param {HTMLElement} span @param {string | null} text in place of the number, or null */
  const open = (span, text) => {
    const given = current();
    const cell = span.parentElement;
    const place = cell && place_of(cell);
    const x = place && given?.number(place);
    if (!cell || !place || x === null || x === undefined) return;
    const input = el("input", { class: "given-input", type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", "aria-label": span.getAttribute("aria-label"), "data-focus": "given input" });
    input.value = text ?? typed_text(x);
    cell.append(input);
    cell.classList.add("editing");
    editor = { input, cell, place, before: x, focus: span.dataset.focus ?? "" };
    input.focus({ preventScroll: true });
    if (text === null) input.select();
    else take();
  };
  /** Takes the number as it is typed. @param {boolean} [finished] */
  const take = (finished = false) => {
    if (!editor) return false;
    const given = current();
    const parsed = parse_typed(editor.input.value);
    const is_wrong = "wrong" in parsed;
    editor.input.setAttribute("aria-invalid", String(is_wrong));
    if (is_wrong) {
      if (finished || !parsed.unfinished) given?.wrong(parsed.wrong);
      return false;
    }
    given?.right();
    decimals.set(key_of(editor.place), parsed.decimals);
    if (!Object.is(given?.number(editor.place), parsed.x)) given?.edit(editor.place, parsed.x);
    return true;
  };
  /** @param {boolean} keep @param {boolean} focus */
  const close = (keep, focus) => {
    if (!editor) return;
    const { input, cell, place, before, focus: name } = editor;
    if (!keep && !Object.is(current()?.number(place), before)) current()?.edit(place, before);
    editor = null;
    cell.classList.remove("editing");
    input.remove();
    if (focus) find(name)?.focus({ preventScroll: true });
  };

  /** @param {HTMLElement} span @param {number} units */
  const step = (span, units) => {
    const place = span.parentElement && place_of(span.parentElement);
    const x = place && current()?.number(place);
    if (!place || x === null || x === undefined || !Number.isFinite(x)) return;
    current()?.right();
    current()?.edit(place, stepped(x, units, decimals_at(place, x)));
  };
  /** The spin button that the tabulator reaches. @param {HTMLElement} span */
  const take_focus = (span) => {
    for (const one of span.closest("table")?.querySelectorAll(".given") ?? []) if (one instanceof HTMLElement) one.tabIndex = one === span ? 0 : -1;
    span.focus();
  };
  /** @param {HTMLElement} span @param {KeyboardEvent} event */
  const key = (span, event) => {
    const all = [...(span.closest("table")?.querySelectorAll(".given") ?? [])].filter((one) => one instanceof HTMLElement);
    const at = all.indexOf(span);
    const units = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowUp") step(span, units);
    else if (event.key === "ArrowDown") step(span, -units);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") take_focus(all[at + (event.key === "ArrowRight" ? 1 : -1)] ?? span);
    else if (event.key === "Home" || event.key === "End") take_focus(all[event.key === "Home" ? 0 : all.length - 1]);
    else if (event.key === "Enter" || event.key === "F2" || event.key === " ") open(span, null);
    else if (event.key === "Delete" || event.key === "Backspace") open(span, "");
    else if (/^[\d.+−-]$/.test(event.key)) open(span, event.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  /** @param {KeyboardEvent} event */
  const key_in_input = (event) => {
    event.stopPropagation();
    if (event.key === "Enter") {
      if (take(true)) close(true, true);
    } else if (event.key === "Escape") {
      current()?.right();
      close(false, true);
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const parsed = parse_typed(editor?.input.value ?? "");
      if (!editor || "wrong" in parsed) return;
      const units = (event.key === "ArrowUp" ? 1 : -1) * (event.shiftKey ? 10 : 1);
      editor.input.value = typed_text(stepped(parsed.x, units, Math.max(parsed.decimals, decimals.get(key_of(editor.place)) ?? 0)));
      take();
      event.preventDefault();
    }
  };
  document.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLInputElement && event.target === editor?.input) return key_in_input(event);
    const span = span_of(event.target);
    if (span && !event.ctrlKey && !event.metaKey && !event.altKey) key(span, event);
  }, true);
  document.addEventListener("input", (event) => {
    if (editor && event.target === editor.input) take();
  });
  document.addEventListener("focusout", (event) => {
    if (!editor || event.target !== editor.input || !editor.input.isConnected) return;
    close(take(true), false);
  });

  document.addEventListener("pointerdown", (event) => {
    const span = span_of(event.target);
    const place = span?.parentElement ? place_of(span.parentElement) : null;
    const x = place && current()?.number(place);
    if (event.button !== 0 || !span || !place || x === null || x === undefined) return;
    drag = { span, place, begun: event.clientX, x, moved: false };
  });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const across = event.clientX - drag.begun;
    if (!drag.moved && Math.abs(across) < pixels_of_drag) return;
    if (!drag.moved) root.classList.add("dragging");
    drag.moved = true;
    if (!Number.isFinite(drag.x)) return;
    const x = stepped(drag.x, Math.round(across / pixels_of_step) * (event.shiftKey ? 10 : 1), decimals_at(drag.place, drag.x));
    if (!Object.is(x, current()?.number(drag.place))) current()?.edit(drag.place, x);
  });
  const end = () => {
    root.classList.remove("dragging");
    drag = null;
  };
  window.addEventListener("pointercancel", end);
  window.addEventListener("pointerup", () => {
    const was = drag;
    end();
    if (!was) return;
    const span = find(was.span.dataset.focus ?? "") ?? was.span;
    if (was.moved) take_focus(span);
    else open(span, null);
  });

  return {
    /** A number that is being typed stays so if its table was drawn again. */
    restore: () => {
      if (!editor || editor.input.isConnected) return;
      const { focus, before, input: { value, selectionStart, selectionEnd } } = editor;
      editor = null;
      const span = find(focus);
      if (!span) return;
      open(span, null);
      const again = edited_now();
      if (!again) return;
      again.before = before;
      again.input.value = value;
      again.input.setSelectionRange(selectionStart, selectionEnd);
    },
    forget: () => {
      editor = null;
      drag = null;
      decimals.clear();
    } };
}
