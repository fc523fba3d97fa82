// SPDX-License-Identifier: Apache-2.0
//
// The parts of the page from the top: the finding, the row as a sum, the resulting vector, the head, the steps, the foot.
// Read next: page.js, which puts them on the page.
import { el, quoted, shown, word } from "./elements.js";
import { finding_of, first_stage, stage_index, stages, weights_of } from "./attention.js";
import { arrays, attentions, chosen_attention, compared_alone, comparison, data, data_of, data_text, explanation, hooks, inspected_alone, inspection, opening_row, root, sentence, set, set_training, state, training, view, without_row } from "./subject.js";
import { finding_line, row_caption, row_table, step_marks, step_note } from "./row_figure.js";
import { mix_figure } from "./mix_figure.js";
import { map_figure, map_note, rows_of } from "./map_figure.js";
import { products_figure, step_section } from "./steps_figure.js";
import { sentence_figure } from "./sentence_figure.js";
import { evidence_figure } from "./evidence_figure.js";
import { projection_figure } from "./projection_figure.js";
import { path_figure } from "./path_figure.js";
import { heads_figure, heads_note } from "./heads_figure.js";
import { comparison_figure, parting_figure } from "./comparison_figure.js";
import { inspection_figure, inspection_finding } from "./inspection_figure.js";
import { data_table } from "./data_table.js";
import { training_article } from "./training_page.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./attention.js").Attention} Attention */

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
      ...attentions.map((one) => el("button", { "data-focus": `attention ${one.name}`, "aria-pressed": String(one === a), click: () => choose_attention(attentions.find((now) => now.name === one.name) ?? one) },
        shown(one.symbol), el("span", { class: "own-name" }, ` ${shown(one.name)}`)))));
  }
  const outer = sentence ? { name: "Layer", count: sentence.layers, heads: sentence.heads }
    : arrays && arrays.batch > 1 ? { name: "Batch", count: arrays.batch, heads: arrays.heads } : null;
  if (outer) {
    const { heads } = outer;
    /** @param {string} name @param {number} count @param {number} chosen @param {(i: number) => number} head_of */
    const numbers = (name, count, chosen, head_of) => el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, name),
      ...Array.from({ length: count }, (_, i) => el("button", { "data-focus": `${name} ${i}`, "aria-pressed": String(i === chosen), click: () => set({ head: head_of(i), open: "" }) }, String(i))));
    line.append(numbers(outer.name, outer.count, Math.floor(state.head / heads), (i) => i * heads + state.head % heads),
      numbers("Head", heads, state.head % heads, (i) => state.head - state.head % heads + i));
  } else if (a.num_heads > 1) {
    line.append(el("p", { class: "chooser" }, el("span", { class: "chooser-name" }, "Head "),
      ...Array.from({ length: a.num_heads }, (_, h) => el("button", { "data-focus": `head ${h}`, "aria-pressed": String(h === state.head), click: () => set({ head: h, open: "" }) }, String(h)))));
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
      ...a.kept_queries.map((i) => el("button", { "data-focus": `word ${i}`, "aria-label": a.query_labels[i], "aria-pressed": String(i === state.query), click: () => set({ query: i, open: "" }) }, String(i)))));
  }
  const line = el("p", { class: `sentence ${a.kept_queries.length > 24 ? "long" : ""}`, "aria-label": "choose the query" });
  for (const i of a.kept_queries) {
    line.append(el("button", { "data-focus": `word ${i}`, class: i === state.query ? "chosen" : null, "aria-pressed": String(i === state.query), click: () => set({ query: i, open: "" }) },
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

/** The parts of the article, from the top; null where a part takes longer. @returns {Generator<HTMLElement | null, void>} */
export function* article() {
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
    view.update_training = made.update;
    for (const part of made.parts) if (part instanceof HTMLElement) yield part;
    return yield foot();
  }
  const a = chosen_attention();
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
      yield el("section", { class: "figure" }, el("h2", {}, "The resulting vector"), el("div", { class: "body" }, mixed, sentence && !state.covered ? path_figure(sentence, state) : null),
        el("aside", { class: "note" }, el("p", {}, "Pale: the value of each key. In full color: the value times its weight. Below the line: the sum over all keys."),
          el("p", {}, "Bars above the line are positive, and hollow bars below it are negative. All share one scale.")));
    }
    if (comparison && !state.covered) yield comparison_figure(comparison, state, set, false);
    if (!state.covered) {
      yield* rows_of(a, state.head);
      yield el("section", { class: "figure" }, el("h2", {}, a.has_heads ? "The whole head" : "All queries"), el("div", { class: "body" }, map_figure(a, state, set)), map_note(a, state));
    }
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
      yield el("section", { class: "errata" }, el("h2", {}, "Errata in the document"), el("ul", {}, ...explanation.errata.map((erratum) => el("li", {}, shown(erratum)))));
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
    el("button", { "data-focus": "uncover", click: () => set({ covered: false }) }, "show"), " or ", el("kbd", {}, "h"));
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
  const a = chosen_attention();
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
export let steps_drawn = { key: "", element: el("section") };

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

/** The steps are drawn anew by the next picture. */
export function forget_steps() {
  steps_drawn = { key: "", element: el("section") };
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
  const a = chosen_attention();
  return el("footer", {},
    el("p", {}, el("code", {}, el("bdi", {}, shown(data.command)))),
    el("p", {}, `Computed by regard ${shown(data.version)} (${shown(data.instruction_set)}); `,
      compared_alone ? `model ${shown(String(data.model.folder).split("/").at(-1) ?? "")}, SHA-256 ${shown(data.model.sha256)}` : sentence ? `model ${shown(data.model.name)}, SHA-256 ${shown(data.model.sha256)}; ${sentence.causal ? "a token attends to itself and to the tokens before it" : "every word attends to every word: an encoder has no mask"}` : (explanation?.settings ?? arrays?.settings ?? data.settings ?? []).map(shown).join("; "), ". ",
      "This file contains all its data and makes no network requests."),
    training ? el("p", { class: "keys" }, el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " snapshots, or cells of the map in focus · ", el("kbd", {}, "space"), " plays · ", el("kbd", {}, "p"), " projector size") : null,
    without_row ? null : el("p", { class: "keys" }, el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " steps, or cells of a table in focus · ", el("kbd", {}, "Enter"), " expands · ",
      el("kbd", {}, "h"), " covers results: predict, then look · ", el("kbd", {}, "p"), " projector size · ", el("kbd", {}, "Esc"), " collapses"),
    el("p", { class: "switches" }, without_row ? null : el("button", { "data-focus": "cover", "aria-pressed": String(state.covered), click: () => set({ covered: !state.covered }) }, state.covered ? "show results" : "cover results"),
      el("button", { "data-focus": "projector", "aria-pressed": String(root.hasAttribute("data-projector")), click: toggle_projector }, "projector size"),
      ...["light", "dark"].map((theme) => el("button", { "data-focus": theme, "aria-pressed": String(root.dataset.theme === theme), click: () => choose_theme(theme) }, theme))),
    a === undefined || state.covered ? null : folded("table", "The row as a table, with every digit", () => el("div", { class: "scroll", tabindex: 0 }, data_table(a, state))),
    state.covered ? null : folded("json", arrays ? "The row as JSON" : "The data as JSON", () => el("pre", { tabindex: 0, "aria-label": "the data as JSON" },
      arrays ? arrays.row_json(state.head, state.query) : data_text ?? data_of(inspected_alone ? "inspection" : "explanation"))),
    hooks.foot?.());
}

/** Choosing the current theme again returns to the system's. @param {string} theme */
function choose_theme(theme) {
  if (root.dataset.theme === theme) delete root.dataset.theme;
  else root.dataset.theme = theme;
  view.draw();
}

export function toggle_projector() {
  root.toggleAttribute("data-projector");
  view.draw();
}
