// SPDX-License-Identifier: Apache-2.0
//
// The page: a lesson, attention on given arrays, a sentence in a model, or a watched training run, as an article with interactive figures. One
// file, made by `regard … --html FILE`, that makes no network requests. The build joins these modules in this order:
//
//     numbers      digits as the terminal prints them         elements     elements of escaped text
//     explanation  the data that a lesson's file carries
//     expand       how a cell was computed                    attention    one attention, as the figures need it
//     sentence     one sentence in a model, recomputed        arrays       the kernel's numbers over arrays
//     state        what is chosen, and its address            grid         tables with arrow keys
//     derivation_figure, row_figure, mix_figure, map_figure, scale_figure, steps_figure, sentence_figure, evidence_figure, projection_figure,
//     path_figure, heads_figure, comparison_figure, inspection_figure, data_table
//     training     a watched run; training_heads_figure, training_curves_figure, training_glass_figure, training_page
//     page         this one: layout and keys                  start        draws it; in a live page, live/live.js
//
// Plain ES modules with types in comments, checked by tsc (web/tsconfig.json); how to change them: docs/reference/page.md.
import { el, quoted, shown, word } from "./elements.js";
import { read_explanation } from "./explanation.js";
import { attentions_of, finding_of, first_stage, stage_index, stages, most_informative_row, weights_of } from "./attention.js";
import { read_sentence } from "./sentence.js";
import { read_arrays } from "./arrays.js";
import { address_of, read_address } from "./state.js";
import { finding_line, row_caption, row_table, step_marks, step_note } from "./row_figure.js";
import { mix_figure } from "./mix_figure.js";
import { map_figure, map_note } from "./map_figure.js";
import { products_figure, step_section } from "./steps_figure.js";
import { sentence_figure } from "./sentence_figure.js";
import { evidence_figure } from "./evidence_figure.js";
import { projection_figure } from "./projection_figure.js";
import { path_figure } from "./path_figure.js";
import { heads_figure, heads_note } from "./heads_figure.js";
import { comparison_figure, parting_figure } from "./comparison_figure.js";
import { inspection_figure, inspection_finding, read_inspection } from "./inspection_figure.js";
import { data_table } from "./data_table.js";
import { opening_head, read_training } from "./training.js";
import { toggle_playing, training_article, training_key } from "./training_page.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./attention.js").Attention} Attention */

/** @param {string} id */
function data_of(id) {
  return document.getElementById(id)?.textContent ?? "{}";
}

const root = document.documentElement;

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

let { data, page, sentence, compared_alone, comparison, inspected_alone, inspection, training, without_row, arrays, explanation, attentions } =
  subject_of(JSON.parse(data_of("explanation")), JSON.parse(data_of("page")), optional_data("comparison"), optional_data("inspection"));

/** The attention that shows most: that of the document, with scores, scale and values. */
function first_attention() {
  return attentions.reduce((best, a, i) => (a.documented > attentions[best].documented ? i : best), 0);
}

/** The head and query that the page opens with. @param {Attention} a */
function opening_row(a) {
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
let state = whole_state(read_address(location.hash));

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

export function current() {
  return { data, page, sentence, comparison, explanation, attentions, state };
}

/** Brings the parts of a watched run up to date with the state. @type {((state: State) => void) | null} */
let update_training = null;
let address_timer = 0;

/** As set(), for a watched run: nothing is drawn again, and the address follows when the slider rests. @param {Partial<State>} change */
function set_training(change) {
  state = { ...state, ...change };
  update_training?.(state);
  clearTimeout(address_timer);
  address_timer = window.setTimeout(() => hooks.record(address_of(state)), 300);
}

/** @param {Partial<State>} change */
export function set(change) {
  state = { ...state, ...change };
  if (["attention", "head", "query", "step", "open", "pair", "without"].some((name) => name in change)) hooks.record(address_of(state));
  if (!hooks.takes?.(change)) draw();
}

/** @param {Attention} a */
function choose_attention(a) {
  const row = opening_row(a);
  set({ attention: a.name, head: row.head, query: a.kept_queries.includes(state.query) ? state.query : row.query, step: Math.max(state.step, first_stage(a)), open: "" });
}

/** @param {Attention} a */
function choosers(a) {
  const line = el("div", { class: "choosers" });
  if (attentions.length > 1) {
    line.append(el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, "Attention "),
      ...attentions.map((one) => el("button", { type: "button", "data-focus": `attention ${one.name}`, "aria-pressed": String(one === a), click: () => choose_attention(attentions.find((now) => now.name === one.name) ?? one) },
        shown(one.symbol), el("span", { class: "own-name" }, ` ${shown(one.name)}`)))));
  }
  const outer = sentence ? { name: "Layer", count: sentence.layers, heads: sentence.heads }
    : arrays && arrays.batch > 1 ? { name: "Batch", count: arrays.batch, heads: arrays.heads } : null;
  if (outer) {
    const { heads } = outer;
    /** @param {string} name @param {number} count @param {number} chosen @param {(i: number) => number} head_of */
    const numbers = (name, count, chosen, head_of) => el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, name),
      ...Array.from({ length: count }, (_, i) => el("button", { type: "button", "data-focus": `${name} ${i}`, "aria-pressed": String(i === chosen), click: () => set({ head: head_of(i), open: "" }) }, String(i))));
    line.append(numbers(outer.name, outer.count, Math.floor(state.head / heads), (i) => i * heads + state.head % heads),
      numbers("Head", heads, state.head % heads, (i) => state.head - state.head % heads + i));
  } else if (a.num_heads > 1) {
    line.append(el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, "Head "),
      ...Array.from({ length: a.num_heads }, (_, h) => el("button", { type: "button", "data-focus": `head ${h}`, "aria-pressed": String(h === state.head), click: () => set({ head: h, open: "" }) }, String(h)))));
  }
  return line;
}

/** The words of a lesson, large, or the numbers of queries; any of them can become the query. @param {Attention} a */
function words(a) {
  if (a.numbered && a.kept_queries.length > 64) {
    const choice = el("select", { "data-focus": "queries", "aria-label": "choose the query", change: () => set({ query: Number(choice.value), open: "" }) },
      ...a.kept_queries.map((i) => el("option", { value: i, selected: i === state.query }, String(i))));
    return el("p", { class: "chooser numbers" }, el("span", { class: "chooser-name" }, "Query"), choice);
  }
  if (a.numbered) {
    return el("p", { class: "chooser numbers", "aria-label": "choose the query" }, el("span", { class: "chooser-name" }, "Query"), el("span", { class: "choices" },
      ...a.kept_queries.map((i) => el("button", { type: "button", "data-focus": `word ${i}`, "aria-label": a.query_labels[i], "aria-pressed": String(i === state.query), click: () => set({ query: i, open: "" }) }, String(i)))));
  }
  const line = el("p", { class: `sentence ${a.kept_queries.length > 24 ? "long" : ""}`, "aria-label": "choose the query" });
  for (const i of a.kept_queries) {
    line.append(el("button", { type: "button", "data-focus": `word ${i}`, class: i === state.query ? "chosen" : null, "aria-pressed": String(i === state.query), click: () => set({ query: i, open: "" }) },
      word(a.query_labels[i], i === state.query ? "query" : "")), " ");
  }
  return line;
}

/** The meaning of the marks after words. */
function legend() {
  const unknown = sentence?.words.some((w) => w.unknown);
  const split = sentence?.words.some((w) => !w.unknown && w.tokens.length > 1);
  if (!unknown && !split) return null;
  return el("p", { class: "caption" }, unknown ? "† not in the vocabulary: the model sees [UNK], as for any such word. " : "", split ? "‡ split into pieces." : "");
}

/** The finding of the terminal for the row of the command, else the finding of the row shown. @param {Attention} a */
function sentence_finding(a) {
  if (!sentence) return "";
  const { focus, hidden, words } = sentence;
  if (state.query === focus.word && state.head === focus.layer * sentence.heads + focus.head) return data.findings.finding;
  const without = sentence.labels.filter((_, w) => words[w].tokens.some((t) => hidden[t])).map((label) => `“${label}”`).join(", ");
  return `${without === "" ? "" : `With ${without} hidden in all layers: `}${finding_of(a, state.head, state.query)}.`;
}

/** The finding of the row as the title; then the sentence, and the evidence for the finding. @param {Attention} a */
function sentence_header(a) {
  const hides = state.covered ? "covered" : "";
  const finding = sentence_finding(a);
  const above = [el("p", { class: "citation" }, `${shown(data.model.name)} · ${sentence?.layers} layers × ${sentence?.heads} heads × ${sentence?.head_size}`),
    ...[data.num_truncated_tokens ? `The text is truncated: ${data.num_truncated_tokens} tokens ${sentence?.causal ? "at the end" : "before the last one"} were left out.` : "", data.warning ?? ""]
      .filter((note) => note !== "").map((note) => el("p", { class: "warning" }, `Note: ${shown(note)}`)),
    el("h1", { class: `finding ${hides}`.trim() }, el("span", {}, quoted(finding))),
    finding === data.findings.finding ? el("p", { class: `selection ${hides}`.trim() }, el("span", {}, quoted(data.findings.selection))) : null].filter((part) => part !== null);
  const below = [sentence && !state.covered ? evidence_figure(sentence, state) : null, legend()].filter((part) => part !== null);
  return hooks.header ? hooks.header(a, above, below)
    : el("header", { class: "sentence-header" }, ...above, sentence_figure(a, weights_of(a, state.head, state.query), state, set), ...below);
}

/** The finding of the row as the title; above it the type, sizes and settings. @param {Attention} a @param {string} about */
function arrays_header(a, about) {
  const finding = finding_of(a, state.head, state.query).replace(/(batch|head|query|key) (\d)/g, "$1\u00a0$2");
  return el("header", { class: "sentence-header" }, el("p", { class: "citation" }, shown(about)),
    el("h1", { class: `finding ${state.covered ? "covered" : ""}`.trim() },
      el("span", {}, `${finding.slice(0, 1).toUpperCase()}${finding.slice(1)}.`)));
}

/** The parts of the article, from the top. @returns {Generator<HTMLElement, void>} */
function* article() {
  yield* hooks.top?.() ?? [];
  const whole = hooks.whole?.() ?? [];
  if (whole.length > 0) return yield* whole;
  if (compared_alone) {
    yield el("header", {}, el("p", { class: "citation" }, `“${shown(data.word)}” in ${data.sentences.length} sentences`), el("h1", {}, quoted(data.findings[0])),
      data.hidden ? el("p", { class: "lead" }, quoted(data.findings[1])) : null);
    yield comparison_figure(data, state, set, true);
    yield parting_figure(data, state);
    return yield foot();
  }
  if (inspected_alone && inspection) {
    yield el("header", { class: "sentence-header" }, el("p", { class: "citation" }, shown([data.type, ...data.settings].join(" · "))), el("h1", {}, `${inspection_finding(inspection)}.`),
      el("p", { class: "lead" }, `${inspection.heads.length} ${inspection.heads.length === 1 ? "head" : "heads"} of ${inspection.queries} queries × ${inspection.keys} keys: too many weights for one page. --rows A:B shows selected queries as sums.`));
    yield inspection_section(inspection);
    return yield foot();
  }
  if (training) {
    const made = training_article(training, () => state, set_training);
    update_training = made.update;
    for (const part of made.parts) if (part instanceof HTMLElement) yield part;
    return yield foot();
  }
  const a = attentions.find((one) => one.name === state.attention);
  yield sentence && a ? sentence_header(a) : arrays && a ? arrays_header(a, arrays.about) : el("header", {}, el("h1", { class: state.covered ? "covered" : null }, el("span", {}, quoted(explanation?.title || "Attention, step by step"))),
    explanation?.citation ? el("p", { class: "citation" }, shown(explanation.citation)) : null);
  if (explanation) yield* hooks.controls?.() ?? [];
  if (a !== undefined) {
    yield el("section", { class: "figure row-section", "aria-label": "the row as a sum" },
      el("div", { class: "top" }, ...(sentence ? [] : arrays ? [words(a)] : [words(a), finding_line(a, state)]), choosers(a), step_marks(a, state, set), state.covered ? predicting() : null), step_note(a, state),
      el("div", { class: "body" }, ...row_body(a)));
    // While results are covered, everything computed from them is left out.
    const mixed = !state.covered || state.step === stage_index.mix ? mix_figure(a, state, set) : null;
    if (mixed) {
      yield el("section", { class: "figure" }, el("h2", {}, "What it becomes"), el("div", { class: "body" }, mixed, sentence && !state.covered ? path_figure(sentence, state) : null),
        el("aside", { class: "note" }, el("p", {}, "Pale: the value of each key. In full colour: the value times its weight. Below the line: their sum."),
          el("p", {}, "Bars above the line are positive, and hollow bars below it are negative. All share one scale.")));
    }
    if (comparison && !state.covered) yield comparison_figure(comparison, state, set, false);
    if (!state.covered) yield el("section", { class: "figure" }, el("h2", {}, a.has_heads ? "The whole head" : "All queries"), el("div", { class: "body" }, map_figure(a, state, set)), map_note(a, state));
  }
  if (sentence && !state.covered) {
    yield el("section", { class: "figure all-heads" }, el("h2", {}, "All heads"), el("div", { class: "body" }, heads_figure(sentence, state, set)),
      el("aside", { class: "note" }, heads_note(sentence, state),
        el("p", {}, `From layer 1 on, keys are contextual: a key is computed from the vector at its ${sentence.noun}, which has already been mixed with other ${sentence.noun}s.`)));
  }
  if (inspection && !state.covered) yield inspection_section(inspection);
  if (explanation) {
    yield* hooks.given?.() ?? [];
    yield steps(explanation);
    if (explanation.errata.length > 0 && !state.covered) {
      yield el("section", { class: "errata" }, el("h2", {}, "Errata of the document"), el("ul", {}, ...explanation.errata.map((erratum) => el("li", {}, shown(erratum)))));
    }
  }
  yield foot();
}

/** The row up to its current step. @param {Attention} a */
function row_body(a) {
  if (state.step === stage_index.project && sentence) return [projection_figure(sentence, state, set)];
  if (state.step === stage_index.project && explanation) return [products_figure(explanation, a, state, set)];
  return [el("div", { class: "scroll" }, row_table(a, state, set)), row_caption(a, state)];
}

/** What to do while results are covered. */
function predicting() {
  return el("p", { class: "predicting" }, `Predict, then look: the result of “${stages[state.step]}” is covered, here and below. `,
    el("button", { type: "button", "data-focus": "uncover", click: () => set({ covered: false }) }, "show"), " or ", el("kbd", {}, "h"));
}

/** The steps that a step is computed from. @param {import("./explanation.js").Step | null} step @returns {Set<import("./explanation.js").Step>} */
function sources_of(step) {
  const found = new Set();
  const add = (/** @type {import("./explanation.js").Step | null} */ one) => {
    for (const operand of [...(one?.requested_operands ?? []), ...(one?.operands ?? [])]) {
      if (operand.step === null || found.has(operand.step)) continue;
      found.add(operand.step);
      add(operand.step);
    }
  };
  add(step);
  return found;
}

/**
 * While results are covered: only the steps from which the one to predict is computed.
 * @param {import("./explanation.js").Explanation} of
 */
function steps_shown(of) {
  const a = attentions.find((one) => one.name === state.attention);
  if (!state.covered || a === undefined) return of.steps;
  const next = a.stage_steps.find((step, stage) => stage >= state.step && step !== null) ?? null;
  const made = sources_of(next);
  // A step may be computed from the operands of a later stage: Q · Kᵀ, if the scores are not a step.
  const covered = new Set(a.stage_steps.slice(state.step));
  if (state.step === stage_index.project) for (const step of a.projections) covered.add(step);
  return of.steps.filter((step) => made.has(step) && !covered.has(step));
}

/** @param {import("./inspection_figure.js").Inspected} of */
function inspection_section(of) {
  return el("section", { class: "figure inspection-section" }, el("h2", {}, "Pooled maps"), el("div", { class: "body" }, inspection_figure(of, state, set)),
    el("aside", { class: "note" }, el("p", {}, "Computed without storing all weights at once. Each map is scaled to its own maximum: use the table to compare heads."),
      el("p", {}, "A key’s share is the weight that a query gives it, averaged over all queries. Entropy in nats, largest weight and distance are means over the queries with a visible key.")));
}

/** The steps are drawn again only when something in them changes, because they may have many numbers. */
let steps_drawn = { key: "", element: el("section") };

/** @param {import("./explanation.js").Explanation} of */
function steps(of) {
  const of_figures = /^(row|mix|map|project) /.test(state.open);
  const key = `${state.head} ${of_figures ? "" : state.open} ${state.covered ? `${state.attention} ${state.step}` : ""}`;
  if (key !== steps_drawn.key) {
    steps_drawn = { key, element: el("section", { class: "steps" }, el("h2", {}, "Step by step"),
      el("p", { class: "lead" }, state.covered ? "These are the steps up to here. Later steps are covered." : "Every number is shown in full. Choose one to see how it was computed."),
      ...steps_shown(of).map((step) => step_section(of, step, state, set))) };
  }
  return steps_drawn.element;
}

/** A step of the lesson shown, drawn anew. @param {number} index */
export function step_at(index) {
  const step = explanation?.steps[index];
  return explanation && step ? step_section(explanation, step, state, set) : null;
}

/** The parts that are expanded at the foot. */
const opened = { json: false, table: false };

/** A part of the foot that is built when it is opened. @param {"json" | "table"} name @param {string} title @param {() => Node} make */
function folded(name, title, make) {
  const details = el("details", { open: opened[name], toggle: () => {
    opened[name] = details.open;
    if (details.open && details.childElementCount === 1) details.append(make());
  } }, el("summary", { "data-focus": name }, title), opened[name] ? make() : null);
  return details;
}

function foot() {
  const a = attentions.find((one) => one.name === state.attention);
  return el("footer", {},
    el("p", {}, el("code", {}, el("bdi", {}, shown(data.command)))),
    el("p", {}, `Computed by regard ${shown(data.version)} (${shown(data.instruction_set)}); `,
      compared_alone ? `model ${shown(String(data.model.folder).split("/").at(-1) ?? "")}, SHA-256 ${shown(data.model.sha256)}` : sentence ? `model ${shown(data.model.name)}, SHA-256 ${shown(data.model.sha256)}; ${sentence.causal ? "a token attends to itself and to the tokens before it" : "every word attends to every word: an encoder has no mask"}` : (explanation?.settings ?? arrays?.settings ?? data.settings ?? []).map(shown).join("; "), ". ",
      "This file contains all its data and makes no network requests."),
    training ? el("p", { class: "keys" }, el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " snapshots, or cells of the map in focus · ", el("kbd", {}, "space"), " plays · ", el("kbd", {}, "p"), " projector size") : null,
    without_row ? null : el("p", { class: "keys" }, el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " steps, or cells of a table in focus · ", el("kbd", {}, "Enter"), " expands · ",
      el("kbd", {}, "h"), " covers results: predict, then look · ", el("kbd", {}, "p"), " projector size · ", el("kbd", {}, "Esc"), " collapses"),
    el("p", { class: "switches" }, without_row ? null : el("button", { type: "button", "data-focus": "cover", "aria-pressed": String(state.covered), click: () => set({ covered: !state.covered }) }, state.covered ? "show results" : "cover results"),
      el("button", { type: "button", "data-focus": "projector", "aria-pressed": String(root.hasAttribute("data-projector")), click: toggle_projector }, "projector size"),
      ...["light", "dark"].map((theme) => el("button", { type: "button", "data-focus": theme, "aria-pressed": String(root.dataset.theme === theme), click: () => choose_theme(theme) }, theme))),
    a === undefined || state.covered ? null : folded("table", "The row as a table, with every digit", () => el("div", { class: "scroll", tabindex: 0 }, data_table(a, state))),
    state.covered ? null : folded("json", arrays ? "The row as JSON" : "The data as JSON", () => el("pre", { tabindex: 0, "aria-label": "the data as JSON" },
      arrays ? arrays.row_json(state.head, state.query) : data_text ?? data_of(inspected_alone ? "inspection" : "explanation"))),
    hooks.foot?.());
}

/** Choosing the current theme again returns to the system's. @param {string} theme */
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
let drawn_open = "";
let own_title = document.title;
/** The JSON shown at the foot, if it is not that of the file. @type {string | null} */
let data_text = null;
/** @typedef {{parts: Generator<HTMLElement, void>, at: number, pause: boolean}} Waiting */

/** The parts that are drawn in later tasks. @type {Waiting | null} */
let waiting = null;

/** @param {string} name */
function focusable(name) {
  const found = [...document.querySelectorAll("[data-focus]")].find((one) => one instanceof HTMLElement && one.dataset.focus === name);
  return found instanceof HTMLElement ? found : null;
}

/** Scrolls only as far as needed to show the expanded number and its derivation. */
function scroll_to_expanded() {
  const box = document.querySelector(".expand")?.getBoundingClientRect();
  const cell = document.querySelector('[data-cell][aria-expanded="true"]')?.getBoundingClientRect();
  if (!box) return;
  const [top, bottom] = [Math.min(cell?.top ?? box.top, box.top), Math.max(cell?.bottom ?? box.bottom, box.bottom)];
  const margin = 12;
  if (top < 0) window.scrollBy(0, top - margin);
  else if (bottom > window.innerHeight) window.scrollBy(0, Math.min(bottom - window.innerHeight + margin, top - margin));
}

/**
 * Shows other data, read anew. In stages: first the top of the page, which keeps the focus, and each other part in a task
 * of its own.
 * @param {{data: any, text: string, page: any, comparison: any}} of
 * @param {Partial<State>} change
 * @param {boolean} in_stages
 * @param {boolean} keeps_steps the steps of a lesson stay as they are drawn
 */
export function show(of, change, in_stages, keeps_steps = false) {
  ({ data, page, sentence, compared_alone, comparison, inspected_alone, inspection, training, without_row, arrays, explanation, attentions } =
    subject_of(of.data, of.page, of.comparison, null));
  state = moved_to({ ...state, ...change });
  if (!keeps_steps) steps_drawn = { key: "", element: el("section") };
  data_text = of.text;
  own_title = shown(data.text ?? data.title ?? own_title);
  draw(in_stages);
}

/** The article on the page. A part that was drawn before keeps its element, and with it the focus. */
function main_element() {
  return document.querySelector("main") ?? document.body.appendChild(el("main"));
}

/** @param {HTMLElement} part @param {number} at @param {boolean} patches */
function put(part, at, patches) {
  const main = main_element();
  const old = main.children[at];
  if (hooks.place?.(old, part, patches)) {
    if (part === steps_drawn.element && old instanceof HTMLElement) steps_drawn.element = old;
  } else if (old === undefined) {
    main.append(part);
  } else if (old !== part) {
    old.replaceWith(part);
  }
}

/** Whether parts wait to be drawn. */
export function is_drawing() {
  return waiting !== null;
}

/** Draws one more of the waiting parts. @param {Waiting} of */
function draw_next(of) {
  if (of !== waiting) return;
  const old = main_element().children[of.at];
  // What is out of view waits until the file is read, or until the key presses pause.
  const is_loading = document.readyState === "loading";
  if (of.pause && (is_loading || (old?.getBoundingClientRect().top ?? 0) > window.innerHeight)) {
    of.pause = is_loading;
    setTimeout(draw_next, is_loading ? 50 : 250, of);
    return;
  }
  const { value } = of.parts.next();
  if (value) {
    put(value, of.at++, true);
    setTimeout(draw_next, 0, of);
  } else {
    waiting = null;
    put_title();
    while (main_element().children.length > of.at) main_element().lastElementChild?.remove();
  }
}

function put_title() {
  document.title = state.covered ? "Predict, then look" : own_title;
}

export function draw(in_stages = false) {
  const parts = article();
  if (in_stages) {
    const tops = hooks.place ? [...main_element().children].map((part) => part.getBoundingClientRect().top) : [];
    waiting = { parts, at: 0, pause: true };
    while (waiting.at < (hooks.top ? 3 : 2) || tops[waiting.at] < window.innerHeight) {
      const { value } = parts.next();
      if (value) put(value, waiting.at, true);
      ++waiting.at;
    }
    hooks.drawn?.();
    setTimeout(draw_next, 0, waiting);
    return;
  }
  waiting = null;
  put_title();
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.focus : undefined;
  const place_of_page = window.scrollY;
  const held = focused === undefined ? undefined : focusable(focused)?.getBoundingClientRect();
  const is_seen = held !== undefined && held.bottom > 0 && held.top < window.innerHeight;
  root.toggleAttribute("data-arriving", drawn_step >= 0 && drawn_step !== state.step);
  drawn_step = state.step;
  let at = 0;
  for (const part of parts) put(part, at++, false);
  while (main_element().children.length > at) main_element().lastElementChild?.remove();
  update_training?.(state);
  if (focused !== undefined) {
    const again = focusable(focused);
    if (again) {
      if (again.dataset.cell !== undefined) {
        for (const other of again.closest("table")?.querySelectorAll("[data-cell]") ?? []) if (other instanceof HTMLElement) other.tabIndex = -1;
        again.tabIndex = 0;
      }
      again.focus({ preventScroll: true });
    }
  }
  window.scrollTo(0, place_of_page);
  // The clicked element stays under the pointer, even if something above it collapses.
  const now = focused === undefined || !is_seen ? undefined : focusable(focused)?.getBoundingClientRect();
  if (held && now && Math.abs(now.top - held.top) > 0.5) window.scrollBy(0, now.top - held.top);
  if (state.open !== "" && state.open !== drawn_open) scroll_to_expanded();
  drawn_open = state.open;
  hooks.drawn?.();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLSelectElement) return;
  const last = stages.length - 1;
  const first = first_stage(attentions.find((one) => one.name === state.attention));
  const of_training = training ? training_key(training, state, event) : null;
  if (training && of_training === "play") toggle_playing(training, () => state, set_training);
  else if (of_training !== null && of_training !== "play") set_training(of_training);
  if (of_training !== null) event.preventDefault();
  if (without_row && event.key !== "p") return;
  if (event.key === "ArrowRight") set({ step: state.step === last ? first : state.step + 1, open: "" });
  else if (event.key === "ArrowLeft" && state.step > first) set({ step: state.step - 1, open: "" });
  else if (event.key === "h") set({ covered: !state.covered });
  else if (event.key === "p") toggle_projector();
  else if (event.key === "Escape") set({ open: "" });
  else return;
  event.preventDefault();
});
let drawn_width = window.innerWidth;
window.addEventListener("resize", () => requestAnimationFrame(() => {
  if (drawn_width === window.innerWidth) return;
  drawn_width = window.innerWidth;
  draw();
}));
window.addEventListener("hashchange", () => {
  if (hooks.navigates?.()) return;
  state = moved_to(read_address(location.hash));
  draw();
});
