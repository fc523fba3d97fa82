// SPDX-License-Identifier: Apache-2.0
//
// The row as a sum: a line for each key, a column for each step from score to weight, and the total. Step marks above
// show the current step; later columns keep their space. A number expands below its line.
// Read next: derivation_figure.js, grid.js.
import { printed_units, styled_number, two_decimals, units_text } from "./numbers.js";
import { el, formula, quoted, shown, spoken, word } from "./elements.js";
import { finding_of, first_stage, stage_index, stages, weight_column, weights_of } from "./attention.js";
import { range_of, strip, derivation_view } from "./derivation_figure.js";
import { make_grid } from "./grid.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

const most_keys = 40;
const most_words = 14;

/** The maximum number of lines of the row. @param {Attention} a */
function most_lines_of(a) {
  return a.contribution ? most_words : most_keys;
}

/**
 * A number in its cell, aligned on the decimal point; a bare 0 is aligned with the digits before the point.
 * @param {number} x
 * @param {import("./numbers.js").NumberStyle} style
 */
export function number_text(x, style) {
  const text = styled_number(x, style);
  const span = el("span", { class: "number" }, text);
  if (text === "0" && style.digits > 0 && !style.scientific) {
    span.append(el("span", { class: "pad", "aria-hidden": "true" }, "." + "0".repeat(style.digits)));
  }
  return span;
}

/**
 * The end of the bars' scale: 1, or the next round number above the largest weight.
 * @param {number} largest
 */
export function scale_end(largest) {
  return [0.02, 0.05, 0.1, 0.2, 0.5].find((x) => largest <= x) ?? 1;
}

/**
 * Which keys have a line: all, or the visible ones with the largest weights, in their order.
 * @param {Attention} a
 * @param {State} state
 * @param {Float64Array} weights
 */
function keys_shown(a, state, weights) {
  const keys = Array.from(weights.keys()).filter((j) => !(state.no_special && a.special?.[j]) && !a.later?.(state.query, j));
  const most = most_lines_of(a);
  if (keys.length <= most) return keys;
  const shown_keys = a.columns.some((column) => column.of_hidden) ? keys : keys.filter((j) => !a.hidden(state.head, state.query, j));
  if (shown_keys.length <= most) return shown_keys;
  return shown_keys.sort((x, y) => weights[y] - weights[x] || x - y).slice(0, most - 2).sort((x, y) => x - y);
}

/**
 * The content of a column, with powers as superscripts.
 * @param {string} text "e^(x − m)", "3ˣ", "q · k"
 */
function means_text(text) {
  const power = /^(.+)\^\((.+)\)$/.exec(text);
  return el("span", { class: "means" }, ...(power ? [el("i", {}, power[1]), el("sup", {}, power[2])] : [text]));
}

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function step_marks(a, state, set) {
  const marks = el("ol", { class: "marks" });
  const first = first_stage(a);
  for (const [i, name] of stages.entries()) {
    if (i < first) continue;
    const absent = i === stage_index.mix ? a.mix === null : i === stage_index.scale && !a.columns.some((c) => c.stage === i);
    marks.append(el("li", { class: i <= state.step ? "reached" : null },
      el("button", { "data-focus": `mark ${i}`, "aria-current": i === state.step ? "step" : null,
        class: absent ? "absent" : null, title: absent ? "not in this computation" : null, click: () => set({ step: i, open: "" }) }, name)));
  }
  const last = stages.length - 1;
  return el("nav", { class: "stepper", "aria-label": "steps of the row" }, marks,
    el("span", { class: "turn" },
      el("button", { "data-focus": "back", disabled: state.step === first, click: () => set({ step: state.step - 1, open: "" }) }, "‹ back"),
      el("button", { "data-focus": "next", click: () => set({ step: state.step === last ? first : state.step + 1, open: "" }) },
        state.step === last ? "from the start ›" : "next ›")));
}

/**
 * The note next to the row: what the step does.
 * @param {Attention} a
 * @param {State} state
 */
export function step_note(a, state) {
  const name = a.has_words ? a.query_labels[state.query] : `query ${state.query}`;
  const note = el("aside", { class: "note step-note", "aria-live": "polite" });
  const equation = a.equations[state.step];
  for (const one of equation.split("\n")) {
    const active = state.step === stage_index.project ? one.split(" = ")[0] : a.symbols[state.step];
    if (one !== "") note.append(el("p", { class: "equation" }, formula(one, active)));
  }
  const max = a.row_max?.(state.head, state.query);
  const score = a.columns.filter((c) => c.stage < stage_index.softmax).at(-1);
  const texts = [
    [projection_text(a)],
    ["The corresponding elements of the query and the key are multiplied, and the products are summed. The sum measures how well the query matches the key."],
    [a.columns.some((c) => c.stage === stage_index.scale) ? "The more elements the vectors have, the larger their dot products. Scaling keeps the scores in the range where softmax does not saturate."
      : "Here, the scores are not scaled."],
    [max === undefined ? "Each element is divided by the sum of its row, so that the row sums to 1."
      : Number.isNaN(max) ? "e^x for each score x, divided by the sum over the row. The thin line is the uniform weight."
      : `e^(x − m) for each score x, where m = ${styled_number(max, score?.style ?? { digits: 4, scientific: false })} is the row’s largest; each is then divided by their sum. The thin line is the uniform weight.`],
    a.mix === null ? ["This computation does not use the weights any further."]
      : ["The sum of the values, each multiplied by its weight, is the ", a.context_name ?? "new vector of", " ", word(name, "query"), "."],
  ];
  const note_text = state.covered ? "" : a.note?.(state.step, state.head, state.query) ?? "";
  note.append(el("p", {}, ...(note_text === "" ? texts[state.step] : [note_text])));
  return note;
}

/** What the first step does. @param {Attention} a */
function projection_text(a) {
  const made = a.projections.map((s) => s.symbol);
  const list = made.length > 1 ? `${made.slice(0, -1).join(", ")} and ${made.at(-1)}` : made.join("");
  if (made.length === 0) return "The vector x of a word is multiplied by the matrices of this head. The products are the query q, the key k and the value v of the word.";
  const line = a.by_columns ? "A column" : "A row";
  return `${line} of ${a.projections[0].operands[0].name} is the vector of a word. Multiplied by a matrix, it becomes ${a.by_columns ? "a column" : "a row"} of ${list}.`;
}

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function row_table(a, state, set) {
  const { head, query } = state;
  const weights = weights_of(a, head, query);
  const keys = keys_shown(a, state, weights);
  const sink = a.sink?.(head, query) ?? null;
  const end = scale_end(weights.reduce((largest, w) => Math.max(largest, w), sink?.weight ?? 0));
  const even = 1 / Math.max(1, weights.reduce((count, _, j) => count + (a.hidden(head, query, j) ? 0 : 1), 0));
  const reached = (/** @type {number} */ stage) => stage <= state.step;
  const covered = (/** @type {number} */ stage) => state.covered && stage === state.step;
  /** @param {number} stage @param {string} kind */
  const cell_class = (stage, kind) => `${kind} ${reached(stage) ? "" : "not-yet"} ${covered(stage) ? "covered" : ""}`.replace(/ +/g, " ").trim();
  // On a narrow page only the weight is shown; before that step, its result, or the column to predict from.
  const shown_early = a.columns.filter((column) => column.stage < stage_index.softmax && (state.covered ? column.stage < state.step : column.stage <= state.step)).at(-1);
  const keeps = state.step < stage_index.softmax || (state.covered && state.step === stage_index.softmax);
  /** @param {import("./attention.js").Column} column */
  const kind_of = (column) => (column.is_weight ? "weight" : `early ${keeps && column === shown_early ? "kept" : ""}`.trim());
  const name = a.query_labels[query];

  const mixes = a.mix !== null && a.mix.width <= 64 && a.contribution === undefined;
  const brought = mixes && a.mix ? keys.map((j) => a.mix?.value(head, j, query).map((x) => x * weights[j]) ?? new Float64Array()) : [];
  const context = a.mix?.context(head, query) ?? new Float64Array();
  const range = range_of([...brought, context]);

  const heads = a.columns.map((column) => el("th", { scope: "col", class: `stage-${column.stage} ${kind_of(column)} ${reached(column.stage) ? "" : "later"}`, title: column.title },
    column.symbol === "" ? null : el("span", { class: "symbol" }, shown(column.symbol)), means_text(typeof column.means === "string" ? column.means : column.means(head, query))));
  const table = el("table", { class: "row-table", role: "grid", "aria-label": `the ${a.by_columns ? "column" : "row"} of ${shown(name)}, key by key` },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "query-name" }, a.numbered ? null : "query ", word(name, "query")), ...heads,
      el("th", { class: `bar-scale ${reached(stage_index.softmax) && !covered(stage_index.softmax) ? "" : "not-yet"}`.trim(), "aria-hidden": "true" }, el("div", {}, el("span", {}, "0"), el("span", {}, String(end)))),
      a.contribution ? el("th", { scope: "col", class: `stage-${stage_index.mix} contribution ${reached(stage_index.mix) ? "" : "later"}`, title: a.contribution.title }, el("span", { class: "means" }, "contribution")) : null,
      mixes ? el("th", { scope: "col", class: `brings ${reached(stage_index.mix) ? "" : "later"}` }, el("span", { class: "means" }, `weight · ${shown(a.mix?.value_symbol ?? "")}`)) : null)));
  const body = el("tbody");
  const span = a.columns.length + 2 + (mixes || a.contribution ? 1 : 0);
  for (const [n, j] of keys.entries()) {
    const hidden = a.hidden(head, query, j);
    const line = el("tr", { class: hidden ? "hidden-key" : null }, el("th", { scope: "row" }, word(a.key_labels[j], "key")));
    let work = null;
    for (const column of a.columns) {
      const id = `row ${j} ${column.name}`;
      const x = column.at(head, query, j);
      const missing = column.missing?.(head, query, j) ?? false;
      const masked = hidden && !column.of_hidden && (column.stage === stage_index.softmax || x === -Infinity);
      const expanded = state.open === id && reached(column.stage) && !covered(column.stage);
      const cell = el("td", { class: cell_class(column.stage, `stage-${column.stage} ${kind_of(column)}`),
        "data-cell": id, "data-focus": id, "aria-expanded": column.expand && !masked && !missing && reached(column.stage) && !covered(column.stage) ? String(expanded) : null },
      masked ? el("span", { class: "hidden-word" }, "hidden") : missing ? "–" : number_text(x, column.style), covered(column.stage) ? spoken("covered") : null);
      line.append(cell);
      const expansion = expanded ? column.expand?.(head, query, j) : null;
      if (expansion) {
        const more = column.is_weight ? a.columns.filter((c) => !c.is_weight).map((c) => ({ name: c.title, text: styled_number(c.at(head, query, j), c.style) })) : [];
        const visible = keys_before(a, head, query, j);
        work = el("tr", { class: "expand" }, el("td", { colspan: span }, contained(derivation_view(expansion, column.style, { key: a.key_labels[j], at: visible, more }))));
      }
    }
    const bar = el("td", { class: cell_class(stage_index.softmax, "bar"), "aria-hidden": "true" });
    if (!hidden && reached(stage_index.softmax) && !covered(stage_index.softmax)) {
      bar.style.setProperty("--even", String(even / end));
      const fill = el("div", { class: "bar-fill" });
      fill.style.setProperty("--share", String(Math.max(0, Math.min(1, weights[j] / end))));
      bar.append(fill);
    }
    line.append(bar);
    if (a.contribution) line.append(el("td", { class: cell_class(stage_index.mix, `stage-${stage_index.mix} contribution`), "data-name": `contribution ${j}` }, hidden ? null : number_text(a.contribution.at(head, query, j), a.contribution.style)));
    if (mixes) {
      line.append(el("td", { class: cell_class(stage_index.mix, "brings") }, hidden ? null
        : strip(brought[n], { width: 96, height: 22, range, kind: "value", label: `weight times value of ${shown(a.key_labels[j])}: ${[...brought[n]].map((x) => styled_number(x, { digits: 4, scientific: false })).slice(0, 8).join(", ")}` })));
    }
    body.append(line);
    if (work) body.append(work);
  }
  table.append(body);

  const rest = weights.reduce((sum, w) => sum + w, 0);
  const left = Array.from(weights.keys()).filter((j) => !keys.includes(j) && !a.later?.(query, j));
  if (left.length > 0) {
    const others = rest - keys.reduce((sum, j) => sum + weights[j], 0);
    const all_hidden = left.every((j) => a.hidden(head, query, j));
    body.append(el("tr", { class: "others" }, el("th", { scope: "row" }, state.no_special && keys.length + (a.special?.filter(Boolean).length ?? 0) === a.num_keys ? "special tokens" : `${left.length} ${all_hidden ? "more" : "others"}`),
      ...a.columns.map((column) => el("td", { class: cell_class(column.stage, kind_of(column)) }, !column.is_weight ? null
        : all_hidden ? el("span", { class: "hidden-word" }, "hidden") : number_text(Math.max(0, others), column.style))),
      el("td", { class: "bar" }), mixes || a.contribution ? el("td", { class: "brings" }) : null));
  }
  if (sink) {
    const bar = el("td", { class: cell_class(stage_index.softmax, "bar"), "aria-hidden": "true" }, el("div", { class: "bar-fill" }));
    bar.style.setProperty("--share", String(Math.max(0, Math.min(1, sink.weight / end))));
    body.append(el("tr", { class: "sink" }, el("th", { scope: "row" }, "the sink"),
      ...a.columns.map((column) => el("td", { class: cell_class(column.stage, kind_of(column)), "data-name": `sink ${column.name}` },
        column.name in sink ? number_text(sink[column.name], column.style) : null)),
      bar, mixes ? el("td", { class: cell_class(stage_index.mix, "brings") }, el("span", { class: "no-value" }, "no value")) : null));
  }
  const totals = a.columns.map((column) => {
    if (!column.adds_up || column.missing?.(head, query, query)) return el("td", { class: kind_of(column) });
    const sum = column.is_weight ? rest + (sink?.weight ?? 0) : column.total?.(head, query) ?? keys.reduce((s, j) => s + column.at(head, query, j), 0);
    return el("td", { class: cell_class(column.stage, kind_of(column)), "data-name": `sum ${column.name}` }, number_text(sum, column.style));
  });
  const shows_bars = reached(stage_index.softmax) && !covered(stage_index.softmax);
  table.append(el("tfoot", { class: a.columns.some((column) => column.adds_up && reached(column.stage)) ? null : "later" },
    el("tr", {}, el("th", { scope: "row" }, "sum"), ...totals, el("td", { class: "bar" }, shows_bars && Number.isFinite(rest) ? uniform_name(even / end, even) : null), a.contribution ? el("td", { class: "adds" }) : null,
    mixes ? el("td", { class: cell_class(stage_index.mix, "brings") }, strip(context, { width: 96, height: 22, range, kind: "context", label: `the sum, ${shown(a.mix?.context_symbol ?? "")}` })) : null)));
  make_grid(table, (id, is_open) => set({ open: is_open ? "" : id }));
  return table;
}

/**
 * The name of the thin line across the bars, below it.
 * @param {number} at of the scale
 * @param {number} even
 */
function uniform_name(at, even) {
  const name = el("span", { class: `uniform-name ${at > 0.5 ? "before" : ""}`.trim() }, `uniform\u00a0${styled_number(even, two_decimals)}`);
  name.style.setProperty("--even", String(at));
  return name;
}

/**
 * Content in a table that does not widen its columns.
 * @param {HTMLElement} content
 */
export function contained(content) {
  return el("div", { class: "contained" }, content);
}

/**
 * The index of a key among those that the query sees.
 * @param {Attention} a
 * @param {number} head
 * @param {number} query
 * @param {number} key
 */
function keys_before(a, head, query, key) {
  let count = 0;
  for (let j = 0; j < key; ++j) if (!a.hidden(head, query, j)) ++count;
  return count;
}

/**
 * Below the table: the sum of the weights if there is a sink, and the sum of the printed weights if it differs from the
 * printed sum.
 * @param {Attention} a
 * @param {State} state
 */
export function row_caption(a, state) {
  const weight = weight_column(a);
  if (state.step < stage_index.softmax || (state.covered && state.step === stage_index.softmax)) return null;
  const weights = weights_of(a, state.head, state.query);
  const sink = a.sink?.(state.head, state.query)?.weight ?? 0;
  const keys = weights.reduce((s, w) => s + w, 0);
  const lines = [];
  if (sink > 0) {
    const exact = printed_units(keys, weight.style) + printed_units(sink, weight.style) === printed_units(1, weight.style);
    lines.push(`The weights of the keys sum to ${styled_number(keys, weight.style)}, which is 1 − ${styled_number(sink, weight.style)}, the sink’s weight${exact ? "" : ", up to rounding"}. `);
  }
  const printed = weights.reduce((s, w) => s + printed_units(w, weight.style), printed_units(sink, weight.style));
  const excess = printed - printed_units(keys + sink, weight.style);
  if (excess !== 0 && Number.isFinite(excess) && !weight.style.scientific && weights.length <= most_lines_of(a)) {
    lines.push(`The rounded weights sum to ${units_text(printed, weight.style)}.`);
  }
  return lines.length > 0 ? el("p", { class: "caption" }, ...lines) : null;
}

/**
 * The finding of the row, its words in their colors.
 * @param {Attention} a
 * @param {State} state
 */
export function finding_line(a, state) {
  const text = finding_of(a, state.head, state.query);
  return el("p", { class: `finding ${state.covered ? "covered" : ""}`.trim() }, el("span", {}, text === "" ? "" : quoted(`${text}.`)));
}
