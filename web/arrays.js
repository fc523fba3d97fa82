// SPDX-License-Identifier: Apache-2.0
//
// Attention over the user's arrays, from the data in the file. Scores, weights, sums and context are the kernel's
// numbers and are shown unchanged; only q · k is computed here, in double, from query and key.
//
//     q·k ─▶ score (scaled, capped, ALiBi and bias added) ─▶ e^(x − m) ─▶ weight ─▶ context
//                                                             the sink is added to the sum here
//
// A head of the figures is batch · heads + head. Read next: src/explain/arrays/attention_html.cpp, attention.js.
import { plain_number, style_for, styled_number } from "./numbers.js";
import { add_term, exponential, expand_products, expand_share } from "./expand.js";
import { decoded } from "./sentence.js";
import { stage_index } from "./attention.js";

/**
 * @typedef {object} Arrays
 * @property {number} batch
 * @property {number} heads of each batch entry
 * @property {string[]} settings
 * @property {string} about type, shape and settings in a line
 * @property {(head: number, query: number) => string} row_json
 * @property {import("./attention.js").Attention} attention
 */

// The number of products sampled to choose how q · k is printed.
const most_sampled = 2 ** 20;

/**
 * The shortest text that reads back as the same number of its type; NaN and infinities in their JSON form.
 * @param {number} x
 * @param {boolean} is_float32
 */
function json_number(x, is_float32) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x < 0 ? "-inf" : "inf";
  if (is_float32) {
    for (let digits = 1; digits < 9; ++digits) {
      const short = Number(x.toPrecision(digits));
      if (Math.fround(short) === x) return short;
    }
  }
  return x;
}

/**
 * @param {any} data "explanation"
 * @param {any} page "page"
 * @returns {Arrays}
 */
export function read_arrays(data, page) {
  const [batch, heads, num_queries, head_size] = data.shapes.query;
  const [, key_heads, num_keys] = data.shapes.key;
  const width = data.shapes.value[3];
  const is_float32 = data.type === "float32";
  const numbers = (/** @type {string | undefined} */ text) =>
    text === undefined ? null : is_float32 ? new Float32Array(decoded(text)) : new Float64Array(decoded(text));
  const some = (/** @type {string} */ text) => numbers(text) ?? new Float64Array();
  const [query, key, value, scores, weights, context, row_max, row_sum] =
    [page.query, page.key, page.value, page.scores, page.weights, page.context, page.row_max, page.row_sum].map(some);
  const [added, sinks, sink_weights] = [page.added, page.sinks, page.sink_weights].map(numbers);
  const bits = page.hidden === undefined ? null : new Uint8Array(decoded(page.hidden));

  /** @type {number[]} */
  const kept = [];
  for (const [begin, end] of page.rows) for (let i = begin; i < end; ++i) kept.push(i);
  const slots = new Map(kept.map((i, n) => [i, n]));
  /** The index of a row among those of all heads. @param {number} head @param {number} i */
  const row_at = (head, i) => head * kept.length + (slots.get(i) ?? 0);
  /** The index of a weight. @param {number} head @param {number} i @param {number} j */
  const at = (head, i, j) => row_at(head, i) * num_keys + j;
  /** The index of a key among those of all KV heads. @param {number} head @param {number} j */
  const key_at = (head, j) => (Math.floor(head / heads) * key_heads + Math.floor((head % heads) / (heads / key_heads))) * num_keys + j;
  /** @param {number} head @param {number} i @param {number} j */
  const hidden = (head, i, j) => {
    const index = at(head, i, j);
    return bits !== null && ((bits[index >> 3] >> (index & 7)) & 1) === 1;
  };
  /** @param {number} head @param {number} i */
  const query_of = (head, i) => query.subarray(row_at(head, i) * head_size, (row_at(head, i) + 1) * head_size);
  /** @param {number} head @param {number} j */
  const key_of = (head, j) => key.subarray(key_at(head, j) * head_size, (key_at(head, j) + 1) * head_size);
  /** @param {number} head @param {number} i @param {number} j */
  const dot = (head, i, j) => {
    const [q, k] = [query_of(head, i), key_of(head, j)];
    let sum = 0;
    for (let d = 0; d < head_size; ++d) sum += q[d] * k[d];
    return sum;
  };
  /** @param {number} head @param {number} i @param {number} j */
  const score = (head, i, j) => scores[at(head, i, j)];
  /** @param {number} head @param {number} i @param {number} j */
  const weight = (head, i, j) => weights[at(head, i, j)];
  /** @param {number} head @param {number} i */
  const max_of = (head, i) => row_max[row_at(head, i)];
  /** @param {number} head @param {number} i */
  const sum_of = (head, i) => row_sum[row_at(head, i)];
  /** @param {number} head @param {number} i */
  const sink = (head, i) => {
    const x = sinks === null ? -Infinity : sinks[head % heads];
    return x === -Infinity || sink_weights === null ? null
      : { score: x, exponential: exponential(x, max_of(head, i)), weight: sink_weights[row_at(head, i)] };
  };
  /** @param {number} head @param {number} i */
  const context_of = (head, i) => Float64Array.from(context.subarray(row_at(head, i) * width, (row_at(head, i) + 1) * width));

  const sampled = [];
  const rows_sampled = Math.max(1, Math.min(kept.length, Math.floor(most_sampled / (batch * heads * num_keys * head_size))));
  for (let head = 0; head < batch * heads; ++head) {
    for (let n = 0; n < rows_sampled; ++n) {
      const i = kept[Math.floor((n * kept.length) / rows_sampled)];
      for (let j = 0; j < num_keys; ++j) sampled.push(dot(head, i, j));
    }
  }
  const score_style = style_for(scores);
  const dot_style = style_for(sampled);
  const weight_style = style_for(weights);
  const value_style = style_for(value);
  const context_style = style_for(context);

  const additions = [page.alibi ? "ALiBi" : "", page.bias ? "bias" : ""].filter((name) => name !== "");
  const rule = page.scale === undefined ? `÷ √${head_size}` : `× ${page.scale}`;
  const scaled_text = page.scale === undefined ? `q · k / √${head_size}` : page.scale === 1 ? "q · k" : `${page.scale} · q · k`;
  const only_scaled = page.soft_cap === undefined && additions.length === 0;
  const equation = `x = ${[page.soft_cap === undefined ? scaled_text : `soft_cap(${scaled_text})`, ...additions].join(" + ")}`;

  const named = (/** @type {string[] | undefined} */ words, /** @type {string} */ kind) => (/** @type {number} */ i) => (words ? `${words[i]} (${i})` : `${kind} ${i}`);
  const label = { query: named(page.query_tokens, "query"), key: named(page.key_tokens, "key") };
  /** @param {number} head @param {number} i @param {number} j */
  const products = (head, i, j) => expand_products(query_of(head, i), key_of(head, j), (d) => `q[${i}, ${d}] · k[${j}, ${d}]`);
  /** From the products to the kernel's score, with each step in double. @param {number} head @param {number} i @param {number} j @returns {import("./expand.js").CellDerivation} */
  const changes = (head, i, j) => {
    const number = (/** @type {number} */ x) => plain_number(x, score_style.digits);
    const result = score(head, i, j);
    /** @type {import("./expand.js").CellDerivation} */
    const work = { terms: [], lines: [], result, kind: "products" };
    let x = dot(head, i, j);
    const scaled = x * (page.scale ?? 1 / Math.sqrt(head_size));
    work.lines.push({ name: "scaled", text: `${number(x)} ${rule} = ${number(scaled)}` });
    x = scaled;
    if (page.soft_cap !== undefined) {
      const capped = page.soft_cap * Math.tanh(x / page.soft_cap);
      work.lines.push({ name: "soft cap", text: `${page.soft_cap} · tanh(${number(x)} / ${page.soft_cap}) = ${number(capped)}` });
      x = capped;
    }
    if (added !== null) {
      const more = added[at(head, i, j)];
      work.lines.push({ name: additions.join(" and "), text: `${number(x)} + ${more < 0 ? `(${number(more)})` : number(more)} = ${number(x + more)}` });
      x += more;
    }
    if (number(x) !== number(result)) work.lines.push({ name: `in ${data.type}`, text: number(result) });
    return work;
  };
  /** @param {number} head @param {number} i @param {number} j @returns {import("./expand.js").CellDerivation} */
  const share = (head, i, j) => {
    const seen = [];
    let index = -1;
    for (let k = 0; k < num_keys; ++k) {
      if (hidden(head, i, k)) continue;
      if (k === j) index = seen.length;
      seen.push({ label: label.key(k), score: score(head, i, k) });
    }
    const joins = sink(head, i);
    if (joins !== null) seen.push({ label: "the sink", score: joins.score });
    return expand_share(seen, index, max_of(head, i), sum_of(head, i), weight(head, i, j), weight_style.digits);
  };
  /** @param {number} head @param {number} i @param {number} d @returns {import("./expand.js").CellDerivation} */
  const mixed = (head, i, d) => {
    /** @type {import("./expand.js").CellDerivation} */
    const work = { terms: [], lines: [], result: context[row_at(head, i) * width + d], kind: "products" };
    for (let j = 0; j < num_keys; ++j) {
      // The value of a hidden key, or of one whose score is −∞, is not read.
      if (hidden(head, i, j) || score(head, i, j) === -Infinity) continue;
      add_term(work, `weight of ${label.key(j)} · v[${j}, ${d}]`, [weight(head, i, j), value[key_at(head, j) * width + d]]);
    }
    return work;
  };

  /** The text of a step for this row instead of the default. @param {number} stage @param {number} head @param {number} i */
  const note = (stage, head, i) => {
    const nothing = max_of(head, i) === -Infinity || sum_of(head, i) === 0;
    if (stage === stage_index.scale && !(only_scaled && page.scale === undefined)) {
      const parts = [`times ${page.scale === undefined ? `1/√${head_size}` : page.scale}`];
      if (page.soft_cap !== undefined) parts.push(`limited to ±${page.soft_cap} by the soft cap, ${page.soft_cap} · tanh(x / ${page.soft_cap})`);
      if (page.alibi) parts.push("minus the head’s slope times the distance (ALiBi)");
      if (page.bias) parts.push("plus the bias");
      return `The product, ${parts.join("; ")}: the score x, as computed by the kernel.`;
    }
    if (stage === stage_index.softmax && nothing) return `${label.query(i)} has no visible key, so it has no weights.`;
    if (stage === stage_index.softmax && Number.isNaN(sum_of(head, i))) return "A score is nan, so every weight of the row is nan.";
    if (stage === stage_index.softmax && sink(head, i) !== null) {
      return `e^(x − m) for each score x, where m = ${styled_number(max_of(head, i), score_style)} is the largest, the sink’s score included; each is then divided by their sum. The sink receives a share of the weight and has no value.`;
    }
    if (stage === stage_index.mix && (nothing || (sink(head, i)?.weight ?? 0) === 1)) return `No key receives weight: the context of ${label.query(i)} is 0.`;
    const broken = stage === stage_index.mix ? context_of(head, i).filter((x) => !Number.isFinite(x)).length : 0;
    if (broken > 0) return `The context is the sum of the values, each multiplied by its weight. Of its ${width} elements, ${broken} ${broken === 1 ? "is" : "are"} not finite.`;
    return "";
  };

  const base = { is_weight: false, adds_up: false, symbol: "", total: null };
  /** @type {import("./attention.js").Attention} */
  const attention = { name: "arrays", term: "attention weights", symbol: "A", document_name: "", by_columns: false,
    num_heads: batch * heads, has_heads: batch * heads > 1, num_queries, num_keys, kept_queries: kept,
    query_labels: [], key_labels: Array.from({ length: num_keys }, (_, j) => label.key(j)), has_words: false, numbered: true,
    head_name: (head) => (batch > 1 ? `batch ${Math.floor(head / heads)}, head ${head % heads}` : `head ${head}`),
    columns: [
      { ...base, stage: stage_index.compare, name: "q_dot_k", means: "q · k", title: `${head_size} products`, style: dot_style, at: dot, expand: products },
      { ...base, stage: stage_index.scale, name: "score", means: only_scaled ? rule : "score", title: "scores", style: score_style, at: score, expand: changes },
      { ...base, stage: stage_index.softmax, name: "exponential", means: "e^(x − m)", title: "exponentials", style: { digits: 4, scientific: false }, adds_up: true,
        at: (head, i, j) => exponential(score(head, i, j), max_of(head, i)), total: sum_of, expand: share },
      { ...base, stage: stage_index.softmax, name: "weight", means: "weight", title: "attention weights", style: weight_style, is_weight: true, adds_up: true,
        at: weight, expand: share }],
    hidden, sink: sinks === null ? undefined : sink, note,
    mix: { value_symbol: "v", context_symbol: "context", value_style, context_style, width,
      value: (head, j) => Float64Array.from(value.subarray(key_at(head, j) * width, (key_at(head, j) + 1) * width)),
      context: context_of, expand: mixed },
    equations: ["", "q · k, element by element", equation, "weights = softmax(x), row by row", "context = weights · V"],
    symbols: ["", "", "", "weights", "context"], projects: false, context_name: "context of", projections: [], stage_steps: [], row_max: max_of, digits: null, documented: 0 };
  for (const i of kept) attention.query_labels[i] = label.query(i);

  const sizes = [batch > 1 ? `batch of ${batch}` : "", heads > 1 ? `${heads} heads${key_heads < heads ? ` (${key_heads} of keys)` : ""}` : "",
    `${num_queries} ${num_queries === 1 ? "query" : "queries"} × ${num_keys} ${num_keys === 1 ? "key" : "keys"} of size ${head_size}`]
    .filter((text) => text !== "").join(" × ");
  return { batch, heads, settings: data.settings, about: [data.type, sizes, ...data.settings].join(" · "), attention, row_json };

  /** @param {number} head @param {number} i */
  function row_json(head, i) {
    const plain = (/** @type {number} */ x) => json_number(x, is_float32);
    const keys = Array.from({ length: num_keys }, (_, j) => j);
    const joins = sink(head, i);
    const row = { ...data, batch: Math.floor(head / heads), head: head % heads, query: i,
      q_dot_k: keys.map((j) => json_number(dot(head, i, j), false)), score: keys.map((j) => plain(score(head, i, j))),
      hidden: keys.filter((j) => hidden(head, i, j)), weight: keys.map((j) => plain(weight(head, i, j))),
      row_max: plain(max_of(head, i)), row_sum: plain(sum_of(head, i)),
      ...(joins === null ? {} : { sink: plain(joins.score), sink_weight: plain(joins.weight) }),
      context: [...context_of(head, i)].map(plain) };
    return `{\n${Object.entries(row).map(([name, part]) => ` ${JSON.stringify(name)}: ${JSON.stringify(part)}`).join(",\n")}\n}`;
  }
}
