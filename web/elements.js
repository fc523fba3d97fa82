// SPDX-License-Identifier: Apache-2.0
//
// Elements from data: every text becomes a text node, so no token can be a tag; invisible characters and direction marks
// are written as escapes, and a word is in a <bdi>, so that it does not reorder the text around it.
// Read next: page.js.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * Text from outside, with controls, direction marks and other invisible characters as \u{…}; the joiners that hold an
 * emoji together stay.
 * @param {string} text
 */
export function shown(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu, (c) =>
    c === "\u200d" || c === "\u200c" ? c : `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`);
}

/**
 * @param {Element} element
 * @param {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} attributes
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/**
 * An HTML element. A function becomes the listener of the event of its name; null and false are left out. A button is
 * one that submits nothing.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  if (element instanceof HTMLButtonElement) element.type = "button";
  fill(element, attributes, children);
  return element;
}

/**
 * An SVG element, likewise.
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Name]}
 */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(element, attributes, children);
  return element;
}

/** The channels of a computed color. @param {string} text "rgb(12, 34, 56)" */
export function channels_of(text) {
  return (text.match(/[\d.]+/g) ?? []).map(Number);
}

/**
 * A word from outside; the style truncates long ones, the title has them whole.
 * @param {string} text
 * @param {string} [kind] "query" or "key": its color and underline
 */
export function word(text, kind = "") {
  const safe = shown(text);
  return el("bdi", { class: `word ${kind}`.trim(), title: safe.length > 14 ? safe : null }, safe === "" ? "∅" : safe);
}

/**
 * A sentence of the page with words from outside; a figure and its % stay on one line.
 * @param {string} text
 */
export function prose(text) {
  return shown(text).replaceAll(" %", "\u00a0%");
}

/**
 * Text whose quoted words stay with their quotes: no line ends after an opening quote, or within a short word.
 * @param {string} text
 */
export function quoted(text) {
  const whole = el("span", {});
  for (const part of prose(text).split(/(“[^”\s]{1,24}”[.,:;]?)/u)) {
    if (part !== "") whole.append(part.startsWith("“") && /”[.,:;]?$/u.test(part) ? el("span", { class: "quoted" }, part) : part);
  }
  return whole;
}

/**
 * A formula: single letters are upright or slanted as in print, and the active ones are colored.
 * @param {string} text
 * @param {string} [active] the symbol that the step is about
 */
export function formula(text, active = "") {
  const parts = el("span", { class: "formula" });
  const safe = shown(text);
  const at = active === "" ? -1 : safe.indexOf(shown(active));
  if (at < 0) {
    parts.append(safe);
  } else {
    parts.append(safe.slice(0, at), el("em", { class: "active" }, shown(active)), safe.slice(at + shown(active).length));
  }
  return parts;
}

/**
 * Text for screen readers only.
 * @param {string} text
 */
export function spoken(text) {
  return el("span", { class: "spoken" }, text);
}
