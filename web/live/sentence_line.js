// SPDX-License-Identifier: Apache-2.0
//
// The sentence of a live page: text with a cursor, and what is drawn around its words: arcs above, the weights below. The
// text is an element that no recomputation replaces, so that cursor, selection and undo stay; all else is placed by the
// rectangles of the words.
//
//          ╭──────────────╮            svg, behind the text; dotted: the weights before a change
//     he sat on the bank of the river  the text, editable as soon as the core runs
//     .01 .04       .04        .71     a button below each word: chooses it; x hides it
//
// Read next: words.js, live.js, sentence_figure.js.
import { styled_number } from "../numbers.js";
import { el, shown, svg, word } from "../elements.js";
import { weight_column } from "../attention.js";
import { patch, patch_children } from "./patch.js";
import { add_to_lines, draw_arcs, most_large, most_with_arcs, special_switch } from "../sentence_figure.js";

/** @typedef {import("../attention.js").Attention} Attention */
/** @typedef {import("../state.js").State} State */
/** @typedef {import("./words.js").Span} Span */

/**
 * @typedef {object} Picture
 * @property {Attention} a
 * @property {Float64Array} weights
 * @property {Float64Array | null} earlier the weights before a change, NaN for new words
 * @property {State} state
 * @property {(Span | null)[]} spans of the words in the text as it is now
 */

const least_change = 0.02;  // of a weight, for an arc of the earlier one

/**
 * @param {object} of
 * @param {string} of.text
 * @param {(text: string) => void} of.edited
 * @param {(change: Partial<State>) => void} of.set
 */
export function sentence_line({ text, edited, set }) {
  const chosen = (/** @type {number} */ word) => set({ query: word, open: "" });
  const typing = el("span", { class: "typing", spellcheck: "false", autocapitalize: "off", autocorrect: "off", translate: "no" }, text);
  const lines = svg("svg", { class: "lines", "aria-hidden": "true" });
  const before = el("span", { class: "specials" });
  const after = el("span", { class: "specials" });
  const shares = el("div", { class: "shares", role: "group", "aria-label": "choose the query" });
  const words = el("div", { class: "words live-words has-arcs" }, lines, before, typing, after, shares);
  const marks = el("div");
  const element = el("div", { class: "sentence-figure" }, words, marks);
  /** @type {Picture | null} */
  let picture = null;
  let composing = false;
  /** The width for which everything is placed. */
  let width = 0;
  /** The query of a text that was scrolled into view. */
  let query_seen = "";
  /** The special tokens that were drawn. */
  let tokens_drawn = "";

  /** @param {number} offset of the text @returns {[Node, number]} */
  const node_at = (offset) => {
    const walker = document.createTreeWalker(typing, NodeFilter.SHOW_TEXT);
    let last = null;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const length = node.textContent?.length ?? 0;
      if (offset <= length) return [node, offset];
      offset -= length;
      last = node;
    }
    return last ? [last, last.textContent?.length ?? 0] : [typing, 0];
  };
  /** @param {Span} span */
  const range_of_span = (span) => {
    const range = document.createRange();
    range.setStart(...node_at(span.begin));
    range.setEnd(...node_at(span.end));
    return range;
  };
  /** The word at the cursor, for a click. */
  const word_at_cursor = () => {
    const selection = getSelection();
    if (!selection?.isCollapsed || !selection.anchorNode || !typing.contains(selection.anchorNode)) return -1;
    const range = document.createRange();
    range.setStart(typing, 0);
    range.setEnd(selection.anchorNode, selection.anchorOffset);
    const at = range.toString().length;
    return picture?.spans.findIndex((one) => one !== null && one.begin <= at && at <= one.end) ?? -1;
  };
  const changed = () => {
    if (!composing) edited(typing.textContent ?? "");
  };
  typing.addEventListener("compositionstart", () => { composing = true; });
  typing.addEventListener("compositionend", () => {
    composing = false;
    changed();
  });
  typing.addEventListener("input", changed);
  typing.addEventListener("beforeinput", (event) => {
    if (["insertParagraph", "insertLineBreak"].includes(event.inputType) || event.inputType.startsWith("format")) event.preventDefault();
  });
  typing.addEventListener("paste", (event) => {
    event.preventDefault();
    document.execCommand("insertText", false, (event.clipboardData?.getData("text/plain") ?? "").replace(/\s+/gu, " "));
  });
  // The page's keys are letters here.
  typing.addEventListener("keydown", (event) => {
    if (typing.isContentEditable) event.stopPropagation();
  });
  typing.addEventListener("click", () => {
    const found = word_at_cursor();
    if (found >= 0) chosen(found);
  });

  /** @param {Picture} of @param {number} i @returns {string} what is below a word */
  const share_text = ({ a, weights, state }, i) => {
    const later = a.later?.(state.query, i) ?? false;
    if (state.covered || later) return "";
    if (a.hidden(state.head, state.query, i)) return "hidden";
    return weights.length > most_large && weights[i] < 0.005 ? "" : styled_number(weights[i], weight_column(a).style);
  };
  /** @param {Picture} of @param {number} i @param {string} kind @param {HTMLElement | null} content */
  const button_of = (of, i, kind, content) => el("button", { class: `${kind} ${i === of.state.query ? "chosen" : ""}`.trim() || null,
    "data-focus": `word ${i}`, "data-word": i, "aria-pressed": String(i === of.state.query), "aria-label": `${shown(of.a.key_labels[i])} ${share_text(of, i)}`.trim(), click: () => chosen(i) },
  content, el("span", { class: "share", "aria-hidden": "true" }, share_text(of, i)));

  /**
   * Places everything by the rectangles of the words; all are measured before anything is changed.
   * @param {() => void} [change] more to change then
   */
  const place = (change) => {
    if (!picture || !element.isConnected) return;
    const { a, weights, earlier, state, spans } = picture;
    const box = words.getBoundingClientRect();
    width = words.clientWidth;
    /** @type {Map<number, import("../sentence_figure.js").Anchor>} */
    const anchors = new Map();
    /** @type {{top: number, bottom: number}[]} */
    const rows = [];
    const buttons = [];
    /** @type {Range[]} */
    const ranges = [];
    const scrolled = words.scrollTop;
    const em = parseFloat(getComputedStyle(words).fontSize);
    const below = parseFloat(getComputedStyle(shares).fontSize) * 1.3 + 3;
    const height = words.scrollHeight;
    const visible_height = words.clientHeight;
    const special_words = words.querySelectorAll(".specials .word");
    const specials = specials_of(picture);
    for (let i = 0; i < a.num_keys; ++i) {
      const span = spans[i];
      const of_text = span === null ? null : range_of_span(span);
      const own = of_text ? of_text.getClientRects()[0] : special_words[specials.indexOf(i)]?.getBoundingClientRect();
      if (!own || own.width === 0) continue;
      if (of_text) ranges[i] = of_text;
      const [top, bottom] = [own.top - box.top + scrolled, own.bottom - box.top + scrolled + below];
      anchors.set(i, { x: own.left + own.width / 2 - box.left, top, line: add_to_lines(rows, top, bottom) });
      if (!of_text) continue;
      const button = button_of(picture, i, "", null);
      button.style.left = `${(own.left - box.left + own.width / 2).toFixed(1)}px`;
      button.style.top = `${(bottom - below + 1).toFixed(1)}px`;
      button.style.minWidth = `${own.width.toFixed(1)}px`;
      buttons.push(button);
    }
    change?.();
    const focused = document.activeElement instanceof HTMLElement && shares.contains(document.activeElement) ? document.activeElement.dataset.word : undefined;
    patch_children(shares, buttons);
    if (focused !== undefined) buttons.find((one) => one.dataset.word === focused)?.focus({ preventScroll: true });
    mark("query-word", ranges[state.query] ? [ranges[state.query]] : []);
    mark("hidden-words", state.covered ? [] : ranges.filter((_, i) => a.hidden(state.head, state.query, i) && !a.later?.(state.query, i)));
    const fresh = svg("svg", { class: "lines", "aria-hidden": "true" });
    if (!state.covered && weights.length <= most_with_arcs) {
      const places = { anchors, lines: rows, width: box.width, height, em };
      draw_arcs(words, fresh, weights, state.query, places);
      if (earlier) {
        const ghosts = svg("svg", { class: "earlier" });
        draw_arcs(words, ghosts, earlier.map((was, i) => (Math.abs(was - weights[i]) >= least_change ? was : 0)), state.query, places);
        fresh.append(ghosts);
      }
    }
    patch(lines, fresh);
    // The query of a long text, unless the reader is typing elsewhere in it.
    const [query, top] = [`${state.query} ${a.num_keys}`, anchors.get(state.query)?.top ?? scrolled];
    if (query !== query_seen && document.activeElement !== typing && (top < scrolled || top > scrolled + visible_height - 2 * below)) words.scrollTop = top - visible_height / 2;
    query_seen = query;
  };
  /** The special tokens that are drawn. @param {Picture} of */
  const specials_of = ({ a, state }) => Array.from({ length: a.num_keys }, (_, i) => i).filter((i) => a.special?.[i] && !state.no_special);
  /** Colors words without an element of their own, where the browser can. @param {string} name @param {Range[]} ranges */
  const mark = (name, ranges) => {
    if ("highlights" in CSS && typeof Highlight === "function") CSS.highlights.set(name, new Highlight(...ranges));
  };
  new ResizeObserver(() => {
    if (words.clientWidth !== width) place();
  }).observe(words);

  return {
    element,
    text: () => typing.textContent ?? "",
    /** @param {string} text */
    replace: (text) => {
      if (typing.textContent !== text) typing.textContent = text;
    },
    /** Gives the text a cursor. */
    open: () => {
      typing.contentEditable = "true";
      try {
        typing.contentEditable = "plaintext-only";
      } catch {
        // A browser without it: paste and format are handled above.
      }
      for (const [name, value] of [["role", "textbox"], ["aria-label", "your sentence"], ["tabindex", "0"]]) typing.setAttribute(name, value);
    },
    close: () => typing.removeAttribute("contenteditable"),
    /** Draws around the words. @param {Picture} of */
    draw: (of) => {
      picture = of;
      const { a, state, weights } = of;
      words.classList.toggle("many", weights.length > most_large);
      words.classList.toggle("has-arcs", weights.length <= most_with_arcs);
      const specials = specials_of(of);
      const special = (/** @type {number} */ i) => button_of(of, i, "special", word(a.key_labels[i], i === state.query ? "query" : ""));
      const held = document.activeElement instanceof HTMLElement && document.activeElement.closest(".specials") ? document.activeElement.dataset.word : undefined;
      const first_word = Math.max(of.spans.findIndex((one) => one !== null), 1);
      const [leading, trailing] = [specials.filter((i) => i < first_word), specials.filter((i) => i >= first_word)];
      const change = () => {
        patch_children(marks, [special_switch(a, weights, state, set)].filter((one) => one !== null));
        patch_children(before, leading.map(special));
        patch_children(after, trailing.map(special));
      };
      // The widths of the same tokens are as they were.
      const tokens = JSON.stringify([leading, trailing].map((side) => side.map((i) => a.key_labels[i])));
      const is_same = tokens === tokens_drawn && element.isConnected;
      tokens_drawn = tokens;
      if (!is_same) change();
      place(is_same ? change : undefined);
      const again = held === undefined ? null : words.querySelector(`.specials [data-word="${held}"]`);
      if (again instanceof HTMLElement) again.focus({ preventScroll: true });
    },
    place };
}
