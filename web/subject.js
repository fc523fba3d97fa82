// SPDX-License-Identifier: Apache-2.0
//
// What the page shows, read from its data, and what is chosen in it. Others read `data`, `state` and the like here, and
// change them by set(), take_subject() and go_to().
// Read next: article.js, page.js.
import { shown } from "./elements.js";
import { read_explanation } from "./explanation.js";
import { attentions_of, first_stage, most_informative_row } from "./attention.js";
import { read_sentence } from "./sentence.js";
import { read_arrays } from "./arrays.js";
import { address_of, read_address } from "./state.js";
import { read_inspection } from "./inspection_figure.js";
import { opening_head, read_training } from "./training.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./attention.js").Attention} Attention */

/** @param {string} id */
export function data_of(id) {
  return document.getElementById(id)?.textContent ?? "{}";
}

export const root = document.documentElement;

/** A part of the file that need not be there. @param {string} id */
function optional_data(id) {
  return document.getElementById(id) ? JSON.parse(data_of(id)) : null;
}

/**
 * What the page shows, read from its data.
 * @param {any} data "explanation"
 * @param {any} page "page"
 * @param {any} compared "comparison", or null
 * @param {any} inspected "inspection", or null
 */
function subject_of(data, page, compared, inspected) {
  const sentence = page.subject === "sentence" ? read_sentence(data, page) : null;
  const compared_alone = page.subject === "comparison";
  const inspected_alone = page.subject === "inspection";
  const training = page.subject === "training" ? read_training(data, page) : null;
  // Pages without a row, and therefore without steps.
  const without_row = compared_alone || inspected_alone || training !== null;
  const arrays = page.subject === "arrays" ? read_arrays(data, page) : null;
  const explanation = sentence || without_row || arrays ? null : read_explanation(data, page);
  return { data, page, sentence, compared_alone, comparison: compared_alone ? data : compared, inspected_alone,
    inspection: inspected ? read_inspection(inspected, page) : null, training, without_row, arrays, explanation,
    attentions: sentence ? [sentence.attention] : arrays ? [arrays.attention] : explanation ? attentions_of(explanation) : [] };
}

export let { data, page, sentence, compared_alone, comparison, inspected_alone, inspection, training, without_row, arrays, explanation, attentions } =
  subject_of(JSON.parse(data_of("explanation")), JSON.parse(data_of("page")), optional_data("comparison"), optional_data("inspection"));

/** The attention that shows most: that of the document, with scores, scale and values. */
function first_attention() {
  return attentions.reduce((best, a, i) => (a.documented > attentions[best].documented ? i : best), 0);
}

/** The head and query that the page opens with. @param {Attention} a */
export function opening_row(a) {
  if (sentence) return { head: sentence.focus.layer * sentence.heads + sentence.focus.head, query: sentence.focus.word };
  return most_informative_row(a, explanation?.focus ?? (arrays ? (page.focus ?? null) : null));
}

/**
 * Completes the state in an address; entries that are missing or do not exist get their initial values.
 * @param {Partial<State>} wanted
 * @returns {State}
 */
function whole_state(wanted) {
  const a = attentions.find((one) => one.name === wanted.attention) ?? attentions[first_attention()];
  const row = a === undefined ? { head: 0, query: 0 } : opening_row(a);
  const num_heads = a?.num_heads ?? inspection?.heads.length ?? training?.num_heads ?? 0;
  const head = wanted.head !== undefined && wanted.head < num_heads ? wanted.head : training ? opening_head(training) : row.head;
  const query = wanted.query !== undefined && a !== undefined && a.kept_queries.includes(wanted.query) ? wanted.query : row.query;
  return { attention: a?.name ?? "", head, query, step: Math.max(wanted.step ?? 0, first_stage(a)), open: wanted.open ?? "", covered: false, own_scale: false,
    no_special: false, sort: "", filter: "all", pair: wanted.pair !== undefined && wanted.pair < (comparison?.pairs.length ?? 0) ? wanted.pair : 0,
    without: Boolean(wanted.without && comparison?.hidden), snapshot: training ? Math.min(wanted.snapshot ?? Infinity, training.kept.length - 1) : -1 };
}

/** @type {State} */
export let state = whole_state(read_address(location.hash));

/** Another place, with the choices that no address stores. @param {Partial<State>} wanted @returns {State} */
function moved_to(wanted) {
  return { ...whole_state(wanted), covered: state.covered, own_scale: state.own_scale, no_special: state.no_special, sort: state.sort, filter: state.filter };
}

/**
 * What a live page (web/live/live.js) does differently. Every other page leaves this as it is.
 * @typedef {object} Hooks
 * @property {((a: Attention, above: Node[], below: Node[]) => HTMLElement) | null} header the header of a sentence, made of the parts above and below the words
 * @property {((change: Partial<State>) => boolean) | null} takes whether a change of the state will be drawn by the live page
 * @property {((address: string) => void)} record stores the state's address
 * @property {(() => void) | null} drawn called after parts were drawn
 * @property {(() => Node | null) | null} foot more for the foot
 * @property {(() => HTMLElement[]) | null} top parts above the article
 * @property {(() => HTMLElement[]) | null} whole the parts in place of the article, if there are any
 * @property {(() => HTMLElement[]) | null} controls parts between the title and the figures of a lesson
 * @property {(() => HTMLElement[]) | null} given parts between the figures and the steps of a lesson
 * @property {((old: Element | undefined, part: HTMLElement, patches: boolean) => boolean) | null} place called before a part replaces an old one, which may become it (if it returns true)
 * @property {(() => boolean) | null} navigates whether the live page follows the address by itself
 */

/** @type {Hooks} */
export const hooks = { header: null, takes: null, record: (address) => history.replaceState(null, "", address), drawn: null, foot: null,
  top: null, whole: null, controls: null, given: null, place: null, navigates: null };

/** The attention chosen, if the page has one. */
export function chosen_attention() {
  return attentions.find((one) => one.name === state.attention);
}

export function current() {
  return { data, page, sentence, comparison, explanation, attentions, state };
}

/**
 * What follows the state: page.js draws, and a watched run brings its parts up to date.
 * @type {{draw: (in_stages?: boolean) => void, update_training: ((state: State) => void) | null}}
 */
export const view = { draw: () => undefined, update_training: null };
let address_timer = 0;

/** As set(), for a watched run: nothing is drawn again, and the address follows when the slider rests. @param {Partial<State>} change */
export function set_training(change) {
  state = { ...state, ...change };
  view.update_training?.(state);
  clearTimeout(address_timer);
  address_timer = window.setTimeout(() => hooks.record(address_of(state)), 300);
}

/** @param {Partial<State>} change */
export function set(change) {
  state = { ...state, ...change };
  if (["attention", "head", "query", "step", "open", "pair", "without"].some((name) => name in change)) hooks.record(address_of(state));
  if (!hooks.takes?.(change)) view.draw();
}

/** Takes the state of an address. @param {Partial<State>} wanted */
export function go_to(wanted) {
  state = moved_to(wanted);
}

export let own_title = document.title;
/** The JSON shown at the foot, if it is not that of the file. @type {string | null} */
export let data_text = null;

/** Other data, read anew. @param {{data: any, text: string, page: any, comparison: any}} of @param {Partial<State>} change */
export function take_subject(of, change) {
  ({ data, page, sentence, compared_alone, comparison, inspected_alone, inspection, training, without_row, arrays, explanation, attentions } =
    subject_of(of.data, of.page, of.comparison, null));
  state = moved_to({ ...state, ...change });
  data_text = of.text;
  own_title = shown(data.text ?? data.title ?? own_title);
}
