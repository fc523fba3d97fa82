// SPDX-License-Identifier: Apache-2.0
//
// What the reader of a live sentence wants to see: the text, the query and the hidden words, which stay the same words
// while the text is edited; and the request that asks the core for it.
//
// Read next: words.js, live.js.
import { weights_of } from "../attention.js";
import { current } from "../subject.js";
import { about } from "./model.js";
import { follow, places_of, words_in } from "./words.js";

/** @typedef {import("./changes.js").Row} Row */
/** @typedef {import("./words.js").Span} Span */

export const most_tested = 26;  // words, of which each is hidden by itself after a pause
const most_certain = 500;  // words; a longer text may be truncated

/**
 * What the reader wants to see. Words are indices into the core's words of the text.
 * @type {{text: string, second: string, query: number | null, head: number | null, hidden: number[]}}
 */
export const wanted = { text: "", second: "", query: null, head: null, hidden: [] };

/** @param {any} data */
export function spans_of(data) {
  return places_of(data.text, data.words);
}

/** @param {any} data @param {any} page @returns {number[]} */
export function hidden_words(data, page) {
  return data.words.flatMap((/** @type {any} */ w, /** @type {number} */ i) => (w.tokens.some((/** @type {number} */ t) => page.hidden_tokens.includes(t)) ? [i] : []));
}

/** The row shown, to be compared with later ones. @returns {Row | null} */
export function row_shown() {
  const { data, sentence, state } = current();
  if (!sentence) return null;
  return { text: data.text, spans: spans_of(data), labels: data.words.map((/** @type {any} */ w) => w.name),
    hidden: data.words.map((/** @type {any} */ _, /** @type {number} */ i) => sentence.attention.hidden(state.head, state.query, i)),
    weights: weights_of(sentence.attention, state.head, state.query) };
}

/** The last text that was not empty, and its words. @type {{text: string, spans: (Span | null)[]}} */
let last = { text: "", spans: [] };
/** The text of the word that was chosen. */
let wish = "";

/**
 * Where a word of the last text is in the text wanted now, or -1; special tokens are counted from the nearer end.
 * @param {number} word @param {(Span | null)[]} spans @param {boolean} nearest
 */
function word_after(word, spans, nearest) {
  const span = last.spans[word] ?? null;
  if (span !== null) return follow(span, last.text, wanted.text, spans, nearest);
  return Math.max(0, word * 2 < last.spans.length ? Math.min(word, spans.length - 1) : spans.length - (last.spans.length - word));
}

/** The query stays the same word. If that is deleted, the nearest takes its place until it is back. @param {number} query @param {(Span | null)[]} spans */
function query_after(query, spans) {
  const own = word_after(query, spans, false);
  if (own >= 0 && (last.spans[query] ?? null) !== null && last.spans[query]?.text === wish) wish = spans[own]?.text ?? wish;
  const back = own < 0 || spans[own]?.text !== wish ? spans.findIndex((one) => one?.text === wish) : -1;
  if (back >= 0) return back;
  return own >= 0 ? own : Math.max(0, word_after(query, spans, true));
}

/** Words of a text among those of the core, which adds special tokens at both ends. @param {Span[]} spans @param {any} data @returns {(Span | null)[]} */
function in_core(spans, data) {
  const leading = (/** @type {any[]} */ words) => Array(Math.max(words.findIndex((w) => !w.special), 0)).fill(null);
  return [...leading(data.words), ...spans, ...leading([...data.words].reverse())];
}

/** A word's name for the core; undefined if it cannot be named before the core has seen the text. @param {number} word @returns {string | undefined} */
function name_of(word) {
  const { data } = current();
  const known = data.text === wanted.text ? data.words[word] : undefined;
  if (known) return known.name.startsWith("@") ? `@${known.tokens[0]}` : known.name;
  const spans = in_core(words_in(wanted.text), data);
  const text = spans[word]?.text;
  if (text === undefined) return word === 0 ? "@0" : data.words.at(-1).special ? data.words.at(-1).name : undefined;
  const same = [...spans.keys()].filter((i) => spans[i]?.text === text);
  return text.startsWith("@") || spans.length > most_certain ? undefined : same.length > 1 ? `${text}#${same.indexOf(word)}` : text;
}

/** The reader has changed the text: the query and the hidden words stay the same words. @param {string} text */
export function follow_edit(text) {
  const { data } = current();
  if (wanted.text.trim() !== "") last = { text: wanted.text, spans: wanted.text === data.text ? spans_of(data) : in_core(words_in(wanted.text), data) };
  wanted.text = text;
  const spans = in_core(words_in(text), data);
  if (text.trim() !== "") {
    if (wanted.query !== null) wanted.query = query_after(wanted.query, spans);
    wanted.hidden = wanted.hidden.map((word) => word_after(word, spans, false)).filter((word) => word >= 0);
  }
}

/** The reader has chosen the query shown. */
export function choose_shown() {
  const { data, state } = current();
  [wanted.query, wanted.head] = [state.query, state.head];
  wish = data.words[state.query]?.text ?? wish;
}

/** @param {string} text of the word that was chosen */
export function choose_text(text) {
  wish = text;
}

/** What the core is asked for. @param {boolean} quick without the test of every word, and without the sums behind numbers if none is expanded */
export function sentence_request(quick) {
  const { data, sentence, state } = current();
  const heads = sentence?.heads ?? 1;
  const { text, query, head } = wanted;
  const hide = wanted.hidden.map(name_of).filter((name) => name !== undefined);
  /** @type {any} */
  const request = { do: "sentence", text, hide, ...(quick ? { quick, sums: state.open !== "" || data.words.length > most_tested } : {}) };
  const name = query === null ? undefined : name_of(query);
  if (name !== undefined) request.query = name;
  if (head !== null) [request.layer, request.head] = [Math.floor(head / heads), head % heads];
  request.command = ["regard explain --model", about.model, quoted_argument(text), ...(name === undefined ? [] : ["--query", quoted_argument(name)]),
    ...(head === null ? [] : ["--layer", request.layer, "--head", request.head]), ...hide.flatMap((name) => ["--hide", quoted_argument(name)])].join(" ");
  return request;
}

/** One argument of a command line. @param {string} text */
export function quoted_argument(text) {
  return /^[\w@#.,:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
