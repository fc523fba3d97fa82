// SPDX-License-Identifier: Apache-2.0
//
// One attention as the figures draw it, independent of its source: the steps from scores to weights, and the values that
// the weights mix. A lesson or arrays may contain several; each is traced back from its weights:
//
//     X·W = Q, K, V  ─▶  Q·Kᵀ  ─▶  ÷√D  ─▶  hidden by the mask  ─▶  e^(x − m)  ─▶  ÷ their sum = weights  ─▶  · V = context
//     Q·Kᵀ  ─▶  ⌊x / 2⌋  ─▶  3^x  ─▶  ÷ their sum  ─▶  …      (lesson by-hand: each step between is a column, too)
//
// Read next: row_figure.js, mix_figure.js, map_figure.js, which draw an Attention.
import { plain_number, style_for, styled_number } from "./numbers.js";
import { axis_label, is_hidden, number_at, index_of, stored_columns, stored_rows } from "./explanation.js";
import { add_term, expand_products, expand_share } from "./expand.js";

/** @typedef {import("./numbers.js").NumberStyle} NumberStyle */
/** @typedef {import("./expand.js").CellDerivation} CellDerivation */

export const stages = ["project", "compare", "scale", "softmax", "mix"];
export const stage_index = { project: 0, compare: 1, scale: 2, softmax: 3, mix: 4 };

/**
 * A column of the row's table. `total` is the number in its last line.
 * @typedef {object} Column
 * @property {number} stage index of stages
 * @property {string} name for the address and for tests
 * @property {string} symbol
 * @property {string | ((head: number, query: number) => string)} means
 * @property {string} title
 * @property {NumberStyle} style
 * @property {boolean} is_weight
 * @property {boolean} adds_up
 * @property {(head: number, query: number, key: number) => number} at
 * @property {((head: number, query: number, key: number) => CellDerivation | null) | null} expand
 * @property {((head: number, query: number, key: number) => boolean)} [missing] where the number does not exist
 * @property {boolean} [of_hidden] hidden keys have this number, too
 * @property {((head: number, query: number) => number) | null} total where the sum is a number of the library
 */

/**
 * @typedef {object} Mix
 * @property {string} value_symbol
 * @property {string} context_symbol
 * @property {NumberStyle} value_style
 * @property {NumberStyle} context_style
 * @property {number} width elements of a value
 * @property {(head: number, key: number, query: number) => Float64Array} value
 * @property {(head: number, query: number) => Float64Array} context
 * @property {((head: number, query: number, dimension: number) => CellDerivation | null) | null} expand
 */

/**
 * @typedef {object} Attention
 * @property {string} name for the address
 * @property {string} term
 * @property {string} symbol
 * @property {string} document_name
 * @property {boolean} by_columns
 * @property {number} num_heads
 * @property {boolean} has_heads
 * @property {number} num_queries
 * @property {number} num_keys
 * @property {number[]} kept_queries those whose rows the file carries
 * @property {string[]} query_labels
 * @property {string[]} key_labels
 * @property {boolean} has_words
 * @property {boolean} [numbered] queries and keys have no names, so their numbers are enough where space is limited
 * @property {boolean[]} [special] keys that are special tokens
 * @property {(head: number) => string} head_name
 * @property {Column[]} columns the last is the weights'
 * @property {Column} [contribution] the norm of what each key contributes, shown instead of its strip
 * @property {(head: number, query: number, key: number) => boolean} hidden
 * @property {(query: number, key: number) => boolean} [later] hidden because it follows the query: left out of lists
 * @property {(head: number, query: number) => Record<string, number> | null} [sink] the sink's number in each column: it is part of the row's sum and has no value
 * @property {(stage: number, head: number, query: number) => string} [note] the text of a step for a row instead of the default, or ""
 * @property {Mix | null} mix
 * @property {boolean} projects query and key are products of matrices that the page has: "project" is its first step
 * @property {import("./explanation.js").Step[]} projections of a lesson: the steps that make query, key and value
 * @property {(import("./explanation.js").Step | null)[]} stage_steps of a lesson: the first step of each stage
 * @property {string} [context_name] what the mixed values are, followed by the query's name, if they are not its new vector
 * @property {string[]} equations of each stage, or ""
 * @property {string[]} symbols the result of each stage
 * @property {((head: number, query: number) => number) | null} row_max what the exponentials are shifted by
 * @property {number | null} digits requested decimals
 * @property {number} documented how much of it is in the document, for choosing what to show first
 */

/** @typedef {import("./explanation.js").Explanation} Explanation */
/** @typedef {import("./explanation.js").Step} Step */
/** @typedef {import("./explanation.js").Matrix} Matrix */

const compare_operations = ["scores", "product", "float32_dots"];

/**
 * The steps from the raw scores to these weights, first to last.
 * @param {Step} weights
 * @returns {{step: Step | null, name: string, matrix: Matrix}[]}
 */
function ancestry(weights) {
  /** @type {{step: Step | null, name: string, matrix: Matrix}[]} */
  const line = [{ step: weights, name: weights.symbol, matrix: weights.result }];
  for (;;) {
    const { step, matrix } = line[0];
    if (step === null || compare_operations.includes(step.operation) || step.operands.length === 0) return line;
    const from = step.operands[0];
    if (from.matrix.rows !== matrix.rows || from.matrix.columns !== matrix.columns || from.matrix.heads !== matrix.heads) return line;
    line.unshift({ step: from.step, name: from.name, matrix: from.matrix });
  }
}

/**
 * What a step does to a number x, in short form.
 * @param {Step} step
 */
function short_form(step) {
  switch (step.operation) {
    case "scaled":
      if (step.scale === "sqrt") return `÷ √${Math.round(1 / (step.factor * step.factor))}`;
      return step.scale === "none" ? "not scaled" : `× ${step.factor}`;
    case "masked":
    case "hide":
      return "masked";
    case "floor_half":
      return "⌊x / 2⌋";
    case "power":
      return `${step.factor === 0 ? "e" : step.factor}^(x)`;
    default:
      return step.term;
  }
}

/**
 * @param {Explanation} e
 * @param {Step} weights
 * @returns {Attention}
 */
function attention_of(e, weights) {
  const line = ancestry(weights);
  const by_columns = e.by_columns;
  const result = weights.result;
  const query_axis = by_columns ? weights.column_axis : weights.row_axis;
  const key_axis = by_columns ? weights.row_axis : weights.column_axis;
  const num_queries = by_columns ? result.columns : result.rows;
  const num_keys = by_columns ? result.rows : result.columns;
  /** @param {Matrix} m @returns {(head: number, query: number, key: number) => number} */
  const reader = (m) => (head, query, key) => by_columns ? number_at(m, head, key, query) : number_at(m, head, query, key);
  /** @param {Step} step @returns {Column["expand"]} */
  const works = (step) => step.works === null ? null : (head, query, key) =>
    step.works?.[index_of(step.result, head, by_columns ? key : query, by_columns ? query : key)] ?? null;
  const [q, k] = weights.operation === "weights" ? weights.requested_operands : line[0].step?.operands ?? [];
  /** @param {import("./explanation.js").Operand} of @param {number} head @param {number} token */
  const vector = (of, head, token) => Float64Array.from({ length: by_columns ? of.matrix.rows : of.matrix.columns },
    (_, d) => by_columns ? number_at(of.matrix, head, d, token) : number_at(of.matrix, head, token, d));
  /** The products of a score, whose result is known if the scores have a step. @param {((head: number, query: number, key: number) => number) | null} known @returns {(head: number, query: number, key: number) => CellDerivation} */
  const products = (known) => (head, query, key) => {
    const [query_label, key_label] = [axis_label(query_axis, query), axis_label(key_axis, key)];
    return expand_products(vector(q, head, query), vector(k, Math.floor(head / (q.matrix.heads / k.matrix.heads)), key), (d) => by_columns
      ? `${k.name}[${d}, ${key_label}] · ${q.name}[${d}, ${query_label}]` : `${q.name}[${query_label}, ${d}] · ${k.name}[${key_label}, ${d}]`, known?.(head, query, key));
  };
  /** @param {Matrix} scores @param {Matrix} row_max @param {Matrix} row_sum @param {number} digits @returns {NonNullable<Column["expand"]>} */
  const share = (scores, row_max, row_sum, digits) => (head, query, key) => {
    const seen = [];
    let at = -1;
    for (let j = 0; j < num_keys; ++j) {
      if (by_columns ? is_hidden(result, head, j, query) : is_hidden(result, head, query, j)) continue;
      if (j === key) at = seen.length;
      seen.push({ label: axis_label(key_axis, j), score: reader(scores)(head, query, j) });
    }
    return expand_share(seen, at, number_at(row_max, head, query, 0), number_at(row_sum, head, query, 0), reader(result)(head, query, key), digits);
  };

  /** @type {Column[]} */
  const columns = [];
  const equations = stages.map(() => "");
  const symbols = stages.map(() => "");
  /** @type {(Step | null)[]} */
  const stage_steps = stages.map(() => null);
  /** @param {number} stage @param {Step} step */
  const tell = (stage, step) => {
    equations[stage] = step.equation;
    symbols[stage] = step.symbol;
    stage_steps[stage] ??= step;
  };
  for (const [n, { step, name, matrix }] of line.entries()) {
    const is_weight = n === line.length - 1;
    const is_compare = step !== null && compare_operations.includes(step.operation);
    const is_power = step !== null && step.operation === "power";
    if (step === null && weights.operation === "weights") {
      // The scores are not a step: the products are computed here, from query and key.
      const raw = products(null);
      const all = [];
      for (let i = 0; i < Math.min(num_queries, 64); ++i) {
        for (let j = 0; j < Math.min(num_keys, 64); ++j) all.push(raw(0, i, j).result);
      }
      const compare = by_columns ? `${k.name}ᵀ · ${q.name}` : `${q.name} · ${k.name}ᵀ`;
      symbols[stage_index.compare] = compare;
      equations[stage_index.compare] = compare;
      columns.push({ stage: stage_index.compare, name: "compare", symbol: compare, means: "q · k", title: "attention scores",
        style: style_for(all), is_weight: false, adds_up: false, at: (h, i, j) => raw(h, i, j).result, expand: raw, total: null });
      if (weights.factor !== 1) {
        symbols[stage_index.scale] = name;
        equations[stage_index.scale] = name;
        const rule = weights.scale === "sqrt" ? `÷ √${Math.round(1 / (weights.factor * weights.factor))}` : `× ${weights.factor}`;
        const scaled = reader(matrix);
        const style = style_for(matrix.numbers);
        columns.push({ stage: stage_index.scale, name: "scale", symbol: "", means: rule, title: "scaled scores", style, is_weight: false,
          adds_up: false, at: scaled, total: null, expand: (head, query, key) => ({ terms: [], kind: "products",
            result: scaled(head, query, key), lines: [{ name: "scaled", text:
              `${plain_number(raw(head, query, key).result, style.digits)} ${rule} = ${plain_number(scaled(head, query, key), style.digits)}` }] }) });
      }
    } else if (step !== null && !is_weight) {
      const stage = is_compare ? stage_index.compare : is_power ? stage_index.softmax : stage_index.scale;
      tell(stage, step);
      columns.push({ stage, name: step.name, symbol: step.symbol, means: is_compare ? "q · k" : short_form(step), title: step.term,
        style: step.style, is_weight: false, adds_up: is_power, at: reader(matrix), total: null,
        expand: step.operation === "scores" ? products(reader(matrix)) : works(step) });
    }
    if (!is_weight) continue;
    tell(stage_index.softmax, weights);
    if (weights.operation === "weights") {
      const [scores, row_max, row_sum] = weights.operands;
      const score = reader(scores.matrix);
      /** @param {number} head @param {number} query */
      const max = (head, query) => number_at(row_max.matrix, head, query, 0);
      columns.push({ stage: stage_index.softmax, name: "exponential", symbol: "", means: "e^(x − m)", title: "exponentials", is_weight: false,
        style: { digits: 4, scientific: false }, adds_up: true,
        at: (head, query, key) => Math.exp(score(head, query, key) - max(head, query)),
        total: (head, query) => number_at(row_sum.matrix, head, query, 0),
        expand: share(scores.matrix, row_max.matrix, row_sum.matrix, weights.style.digits) });
    }
    columns.push({ stage: stage_index.softmax, name: weights.name, symbol: weights.symbol, means: "weight", title: weights.term, style: weights.style,
      is_weight: true, adds_up: true, at: reader(result), total: null,
      expand: weights.operation === "weights" ? share(weights.operands[0].matrix, weights.operands[1].matrix, weights.operands[2].matrix, weights.style.digits)
        : weights.operation === "divide" ? powers_of_row(works(weights), line[line.length - 2].matrix) : works(weights) });
  }

  /** By hand, a weight is one power over the sum of the row's powers. @param {Column["expand"]} work @param {Matrix} powers @returns {Column["expand"]} */
  function powers_of_row(work, powers) {
    return (head, query, key) => {
      /** @type {CellDerivation} */
      const row = { terms: [], lines: work?.(head, query, key)?.lines ?? [], result: reader(result)(head, query, key), kind: "shares" };
      for (let j = 0; j < num_keys; ++j) add_term(row, axis_label(key_axis, j), [reader(powers)(head, query, j)]);
      return row;
    };
  }
  const mixed = e.steps.find((s) => s.index > weights.index && s.operands.length >= 2 && s.operands.some((o) => o.step === weights) &&
    (s.operation === "context" || s.operation === "product"));
  const kept = by_columns ? result.kept_columns : result.kept_rows;
  if (mixed) tell(stage_index.mix, mixed);
  const value = mixed?.operands.find((o) => o.step !== weights)?.step;
  const projections = /** @type {Step[]} */ ([...new Set([q?.step, k?.step, value])].filter((s) => s !== null && s !== undefined && s.operation === "linear"));
  const projects = projections.some((s) => s === q?.step || s === k?.step);
  if (projects) {
    equations[stage_index.project] = projections.map((s) => s.equation).join("\n");
    stage_steps[stage_index.project] = projections.reduce((first, s) => (first && s && first.index < s.index ? first : s), /** @type {Step | null} */ (null));
  }
  const words = by_columns ? weights.column_axis.labels : weights.row_axis.labels;
  return { name: weights.name, term: weights.term, symbol: weights.symbol, document_name: weights.document_name, by_columns,
    num_heads: result.heads, has_heads: result.has_heads, num_queries, num_keys,
    kept_queries: kept ?? Array.from({ length: num_queries }, (_, i) => i),
    query_labels: Array.from({ length: num_queries }, (_, i) => axis_label(query_axis, i)),
    key_labels: Array.from({ length: num_keys }, (_, j) => axis_label(key_axis, j)),
    has_words: words !== undefined && words.length > 0, head_name: (head) => `head ${head}`, columns,
    hidden: (head, query, key) => by_columns ? is_hidden(result, head, key, query) : is_hidden(result, head, query, key),
    mix: mixed ? mix_of(e, mixed, weights) : null, equations, symbols, stage_steps, projects,
    projections, context_name: result.heads > 1 ? "output of this head for" : undefined,
    digits: e.digits,
    row_max: weights.operation === "weights" ? (head, query) => number_at(weights.operands[1].matrix, head, query, 0) : null,
    documented: (weights.compared ? 4 : 0) + (mixed ? 2 : 0) + (line.length > 2 ? 1 : 0) + (line[0].step ? 1 : 0) };
}

/**
 * @param {Explanation} e
 * @param {Step} mixed
 * @param {Step} weights
 * @returns {Mix}
 */
function mix_of(e, mixed, weights) {
  const operand = mixed.operands.find((o) => o.step !== weights) ?? mixed.operands[0];
  const value = operand.matrix;
  const width = e.by_columns ? mixed.result.rows : mixed.result.columns;
  const key_heads = value.heads;
  /** @param {Matrix} m @param {number} head @param {number} token */
  const vector = (m, head, token) => Float64Array.from({ length: width }, (_, d) => e.by_columns ? number_at(m, head, d, token) : number_at(m, head, token, d));
  return { value_symbol: operand.name, context_symbol: mixed.symbol, context_style: mixed.style,
    value_style: operand.step ? operand.step.style : style_for(value.numbers), width,
    value: (head, key) => vector(value, Math.floor(head / (mixed.result.heads / key_heads)), key),
    context: (head, query) => vector(mixed.result, head, query),
    expand: mixed.works === null ? null : (head, query, dimension) =>
      mixed.works?.[index_of(mixed.result, head, e.by_columns ? dimension : query, e.by_columns ? query : dimension)] ?? null };
}

/**
 * Every attention of an explanation, in its order.
 * @param {Explanation} e
 */
export function attentions_of(e) {
  return e.steps.filter((s) => s.sums_to_one !== "" && ["weights", "divide", "ratio", "softmax"].includes(s.operation) &&
    stored_rows(s.result) > 0 && stored_columns(s.result) > 0).map((s) => attention_of(e, s));
}

/** The last column of a row: its weights. @param {Attention} a */
export function weight_column(a) {
  return a.columns[a.columns.length - 1];
}

/**
 * The weights of one row, 0 where hidden.
 * @param {Attention} a
 * @param {number} head
 * @param {number} query
 */
export function weights_of(a, head, query) {
  const weight = weight_column(a);
  const weights = new Float64Array(a.num_keys);
  for (let j = 0; j < weights.length; ++j) weights[j] = weight.at(head, query, j);
  return weights;
}

/**
 * @param {string[]} labels
 * @param {number} index
 * @param {string} kind
 * @param {boolean} quoted
 */
function quoted_label(labels, index, kind, quoted) {
  const label = [...(labels[index] ?? "")];
  return quoted ? `“${label.length > 24 ? label.slice(0, 23).join("") + "…" : label.join("")}”` : `${kind} ${index}`;
}

/**
 * The first stage of a row: if query and key are given, there is no projection.
 * @param {Attention | undefined} a
 */
export function first_stage(a) {
  return a?.projects ? stage_index.project : stage_index.compare;
}

/**
 * The finding of a row in a sentence, in the words of findings.cpp for the row in focus.
 * @param {Attention} a
 * @param {number} head
 * @param {number} query
 */
export function finding_of(a, head, query) {
  const weights = weights_of(a, head, query);
  const seen = [];
  for (let j = 0; j < a.num_keys; ++j) if (!a.hidden(head, query, j)) seen.push(j);
  const most = seen.reduce((largest, j) => Math.max(largest, weights[j]), -Infinity);
  const winners = seen.filter((j) => weights[j] === most);
  const query_name = quoted_label(a.query_labels, query, "query", a.has_words);
  const names = winners.map((j) => quoted_label(a.key_labels, j, "key", a.has_words));
  const list = names.length > 4 ? `${names.length} keys equally`
    : names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
  const where = a.has_heads ? `In ${a.head_name(head)}, ` : "";
  if (seen.length === 0) return `${where}${query_name} has no visible key`;
  if (!Number.isFinite(most)) return `${where}the weights of ${query_name} are nan`;
  if (most === 0) return `${where}${query_name} attends to no key: every weight is 0`;
  if (seen.length === 1) return `${where}${query_name} attends only to ${list}`;
  const style = style_for([most], a.digits);
  if (winners.length === seen.length) return `${where}${query_name} attends uniformly to all visible keys: ${styled_number(most, style)} each`;
  const share = { digits: Math.max(2, style.digits), scientific: false };
  return `${where}${query_name} attends most to ${list}: ${styled_number(most, share)}${winners.length > 1 ? " each" : ""}` +
    ` (uniform: ${styled_number(1 / seen.length, share)})`;
}

/**
 * The head and query with the most conspicuous largest weight; only of the query in focus if there is one.
 * @param {Attention} a
 * @param {number | null} focus
 */
export function most_informative_row(a, focus) {
  const queries = focus !== null && a.kept_queries.includes(focus) ? [focus] : a.kept_queries;
  let best = { head: 0, query: queries[0], gain: -1 };
  for (let head = 0; head < a.num_heads; ++head) {
    for (const query of queries) {
      const weights = weights_of(a, head, query);
      let seen = 0;
      let most = -Infinity;
      for (let j = 0; j < a.num_keys; ++j) {
        if (a.hidden(head, query, j)) continue;
        ++seen;
        most = Math.max(most, weights[j]);
      }
      const gain = seen > 1 ? most - 1 / seen : -0.5;
      if (gain > best.gain) best = { head, query, gain };
    }
  }
  return best;
}
