// SPDX-License-Identifier: Apache-2.0
//
// Words as places in a text, and where they go when the text is edited. The core splits the text into words; the page
// splits it, too, to say which word is chosen before the core has seen the new text.
//
//     he sat on the bank of the river            the middle part was replaced: places before it stay, places after it
//     he sat on the bank of the lake shore       move along, and a word within it follows to what overlaps its place
//
// Read next: live.js.

/** @typedef {{text: string, begin: number, end: number}} Span */
/** @typedef {(begin: number, end: number) => {begin: number, end: number, own: boolean}} Edit */

const part = /\p{Ideographic}|[\p{P}$+<=>^`|~]|[^\s\p{P}$+<=>^`|~\p{Ideographic}]+/gu;

/**
 * The words of a text as BERT splits it: at whitespace; punctuation and ideographs are words of their own.
 * @param {string} text
 * @returns {Span[]}
 */
export function words_in(text) {
  return [...text.matchAll(part)].map((found) => ({ text: found[0], begin: found.index, end: found.index + found[0].length }));
}

/**
 * The places of the core's words in a text; null for special tokens and for words that are spelled differently.
 * @param {string} text
 * @param {{text: string, special: boolean}[]} words
 * @returns {(Span | null)[]}
 */
export function places_of(text, words) {
  let from = 0;
  return words.map((word) => {
    const begin = word.special || word.text === "" ? -1 : text.indexOf(word.text, from);
    if (begin < 0) return null;
    from = begin + word.text.length;
    return { text: word.text, begin, end: from };
  });
}

/**
 * Where a place of one text is in another: what both have in common at the beginning and at the end stays. `own` means
 * that nothing outside the place was edited, or nothing of it.
 * @param {string} old
 * @param {string} text
 * @returns {Edit}
 */
function edit_between(old, text) {
  const most = Math.min(old.length, text.length);
  let [head, tail] = [0, 0];
  while (head < most && old[head] === text[head]) ++head;
  while (tail < most - head && old[old.length - 1 - tail] === text[text.length - 1 - tail]) ++tail;
  const moved = text.length - old.length;
  return (begin, end) => {
    if (end <= head) return { begin, end, own: true };
    if (begin >= old.length - tail) return { begin: begin + moved, end: end + moved, own: true };
    return { begin: Math.min(begin, head), end: Math.max(end + moved, head), own: begin <= head && old.length - tail <= end };
  };
}

/** The edit that was asked for last: all words of a text follow the same one. @type {{old: string, text: string, place: Edit | null}} */
let latest = { old: "", text: "", place: null };

/**
 * The word that a word of the old text has become: the one in its place, unless more than the word was replaced; or, if
 * `nearest`, one of the same spelling, or the nearest one. -1 if there is none.
 * @param {Span} span
 * @param {string} old
 * @param {string} text
 * @param {(Span | null)[]} spans of `text`
 * @param {boolean} nearest
 */
export function follow(span, old, text, spans, nearest) {
  if (latest.old !== old || latest.text !== text) latest = { old, text, place: null };
  const to = (latest.place ??= edit_between(old, text))(span.begin, span.end);
  /** @param {(one: Span) => number} cost Infinity where it does not fit */
  const best = (cost) => spans.reduce((found, one, i) => {
    const own = one === null ? Infinity : cost(one);
    return own < found.cost ? { i, cost: own } : found;
  }, { i: -1, cost: Infinity }).i;
  const middle = (to.begin + to.end) / 2;
  const distance = (/** @type {Span} */ one) => Math.abs((one.begin + one.end) / 2 - middle);
  const overlaps = (/** @type {Span} */ one) => one.begin < to.end && one.end > to.begin;
  const exact = best((one) => (one.text === span.text && overlaps(one) ? distance(one) : Infinity));
  if (exact >= 0) return exact;
  // A letter typed at the edge of a word extends it.
  const grown = best((one) => (to.own && one.begin <= to.begin && one.end >= to.end && to.end > to.begin ? distance(one) : Infinity));
  if (grown >= 0) return grown;
  const same = nearest ? best((one) => (one.text === span.text ? distance(one) : Infinity)) : -1;
  if (same >= 0) return same;
  const inside = best((one) => (to.own && overlaps(one) ? distance(one) : Infinity));
  return inside >= 0 || !nearest ? inside : best(distance);
}
