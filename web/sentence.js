// SPDX-License-Identifier: Apache-2.0
//
// A sentence in a model, from the data in the file: query, key and value of every layer and head. Any row is computed
// from them in double, as in src/explain/sentence/sentence_row.cpp. Words of several pieces are shown as one.
//
//     q·k of each piece and token ─▶ ÷√D ─▶ softmax ─▶ words: sum over the key's pieces, mean over the query's
//
// A head of the figures is layer · heads + head. Read next: src/explain/sentence/sentence_html.cpp, attention.js.
import { bytes_of } from "./bytes.js";
import { plain_number, subtrahend, two_decimals } from "./numbers.js";
import { add_term, expand_products } from "./expand.js";
import { stage_index } from "./attention.js";

/** @typedef {{text: string, name: string, tokens: number[], special: boolean, unknown: boolean}} Word */

/**
 * @typedef {object} SentenceRow
 * @property {Float64Array[]} dots of each piece of the query, by token
 * @property {Float64Array[]} scores likewise
 * @property {Float64Array[]} weights likewise
 * @property {Float64Array} words the weight of each word
 */

/**
 * The projection that gives a query, key or value of `head_size` elements: x · W + b. The file has x and the largest
 * products for the word and head of its command, and for the key that this word attends to most.
 * @typedef {object} Projected
 * @property {"query" | "key" | "value"} kind
 * @property {string} symbol
 * @property {string} parameters
 * @property {number} word
 * @property {number} token the word's first
 * @property {Float32Array | null} x the word's vector before the layer
 * @property {ArrayLike<number>} numbers
 * @property {{largest: number[][], others: number, bias: number}[] | null} from the sum behind each element
 */

/**
 * @typedef {object} Sentence
 * @property {any} data the output of --json
 * @property {Word[]} words
 * @property {string[]} labels each word's name, with † if it is unknown to the vocabulary, ‡ if it is split
 * @property {number} layers
 * @property {number} heads
 * @property {number} head_size
 * @property {number} width
 * @property {boolean[]} hidden by token
 * @property {boolean} causal a word attends only to itself and to the words before it; each is one token
 * @property {boolean} rotated query and key are rotated by their positions after the projection
 * @property {string} noun "word", or "token" of a causal model
 * @property {(head: number, word: number) => SentenceRow} row
 * @property {(head: number, word: number, key: number) => number} contribution
 * @property {Uint8Array | null} thumbnails 64 × 64 per head
 * @property {Float32Array} thumbnail_maxima
 * @property {any} focus
 * @property {(head: number, word: number, key: number) => Projected[]} projected
 * @property {import("./attention.js").Attention} attention
 */

/**
 * The bytes of an array of the page: base64 in a file, an array of their own in the answers of a live page.
 * @param {string | Float32Array | Uint8Array} text
 * @returns {ArrayBufferLike}
 */
export function decoded(text) {
  return (typeof text === "string" ? bytes_of(text) : text).buffer;
}

/** @param {string | Float32Array} text */
export function float32s(text) {
  return new Float32Array(decoded(text));
}

/**
 * The shift of the exponentials: 0 if they are of a readable size, else the largest score.
 * @param {Float64Array} scores
 */
function shift_of(scores) {
  const most = Math.max(...scores);
  return most >= -3 && most <= 9 ? 0 : most;
}

/**
 * @param {any} data "explanation"
 * @param {any} page "page"
 * @returns {Sentence}
 */
export function read_sentence(data, page) {
  const { layers, heads, depth: head_size, width } = page;
  /** @type {Word[]} */
  const words = data.words;
  const num_tokens = data.tokens.length;
  const [query, key, value, gram] = [page.query, page.key, page.value, page.gram].map(float32s);
  const hidden = Array.from({ length: num_tokens }, (_, t) => page.hidden_tokens.includes(t));
  const causal = page.causal === true;
  const rotated = page.rotated === true;
  const root = Math.sqrt(head_size);
  const labels = words.map((w) => `${w.name}${w.unknown ? "†" : w.tokens.length > 1 ? "‡" : ""}`);
  /** @param {number} head @param {number} token */
  const at = (head, token) => (head * num_tokens + token) * head_size;

  /** @param {number} head @param {number} word @returns {SentenceRow} */
  const make_row = (head, word) => {
    const pieces = words[word].tokens;
    /** @type {SentenceRow} */
    const row = { dots: [], scores: [], weights: [], words: new Float64Array(words.length) };
    for (const piece of pieces) {
      const of = at(head, piece);
      const dots = new Float64Array(num_tokens);
      const scores = new Float64Array(num_tokens);
      const weights = new Float64Array(num_tokens);
      let most = -Infinity;
      for (let t = 0; t < num_tokens; ++t) {
        let dot = 0;
        const from = at(head, t);
        for (let d = 0; d < head_size; ++d) dot += query[of + d] * key[from + d];
        dots[t] = dot;
        scores[t] = hidden[t] || (causal && t > piece) ? -Infinity : dot / root;
        most = Math.max(most, scores[t]);
      }
      let sum = 0;
      for (let t = 0; t < num_tokens; ++t) sum += Math.exp(scores[t] - most);
      if (most > -Infinity) for (let t = 0; t < num_tokens; ++t) weights[t] = Math.exp(scores[t] - most) / sum;
      row.dots.push(dots);
      row.scores.push(scores);
      row.weights.push(weights);
    }
    for (const [w, { tokens }] of words.entries()) {
      for (const t of tokens) {
        let weight = 0;
        for (const weights of row.weights) weight += weights[t] / pieces.length;
        row.words[w] += weight;
      }
    }
    return row;
  };
  /** @type {Map<number, SentenceRow>} */
  const rows = new Map();
  /** @param {number} head @param {number} word */
  const row = (head, word) => {
    const index = head * words.length + word;
    let known = rows.get(index);
    if (known === undefined) {
      if (rows.size > 2048) rows.clear();
      known = make_row(head, word);
      rows.set(index, known);
    }
    return known;
  };
  /** The sum of weight · value over a word's pieces. @param {number} head @param {number} word @param {number} key_word */
  const weighted_values = (head, word, key_word) => {
    const { weights } = row(head, word);
    const sum = new Float64Array(head_size);
    for (const t of words[key_word].tokens) {
      let weight = 0;
      for (const piece of weights) weight += piece[t] / weights.length;
      for (let d = 0; d < head_size; ++d) sum[d] += weight * value[at(head, t) + d];
    }
    return sum;
  };
  /** @param {number} head @param {number} word @param {number} key_word */
  const contribution = (head, word, key_word) => {
    const b = weighted_values(head, word, key_word);
    let square = 0;
    let index = (head * head_size * (head_size + 1)) / 2;
    for (let i = 0; i < head_size; ++i) {
      for (let j = 0; j <= i; ++j) square += (i === j ? 1 : 2) * b[i] * b[j] * gram[index++];
    }
    return Math.sqrt(Math.max(0, square));
  };

  /** q·k belongs to two pieces: words of several pieces do not have one. @param {number} head @param {number} word @param {number} key_word */
  const missing = (head, word, key_word) => words[word].tokens.length > 1 || words[key_word].tokens.length > 1;
  /** @param {number} head @param {number} word @param {number} key_word */
  const is_hidden = (head, word, key_word) => (causal && key_word > word) || words[key_word].tokens.some((t) => hidden[t]);
  /** @param {number} head @param {number} word @param {number} key_word */
  const score = (head, word, key_word) => row(head, word).scores[0][words[key_word].tokens[0]];
  /** @param {number} head @param {number} word */
  const total = (head, word) => {
    const { scores } = row(head, word);
    const shift = shift_of(scores[0]);
    return scores[0].reduce((sum, x) => sum + Math.exp(x - shift), 0);
  };
  /** @param {number} head @param {number} word @param {number} key_word @returns {import("./expand.js").CellDerivation} */
  const share = (head, word, key_word) => {
    const { scores } = row(head, word);
    const shift = shift_of(scores[0]);
    const seen = words.map((w, i) => ({ i, w })).filter(({ i }) => !is_hidden(head, word, i));
    /** @type {import("./expand.js").CellDerivation} */
    const work = { terms: [], lines: [], result: row(head, word).words[key_word], kind: "shares" };
    for (const { i, w } of seen) {
      add_term(work, labels[i], [], w.tokens.reduce((sum, t) => sum + Math.exp(scores[0][t] - shift), 0));
    }
    const x = score(head, word, key_word);
    const exponential = plain_number(Math.exp(x - shift), 2);
    const power = shift === 0 ? `e^${plain_number(x, 2)}` : `e^(${plain_number(x, 2)} − ${subtrahend(shift, 2)})`;
    const sum = plain_number(total(head, word), 2);
    work.lines.push({ name: "exponential", text: `${power} = ${exponential}` }, { name: "sum of all", text: sum },
      { name: "share", text: `${exponential} / ${sum} = ${plain_number(work.result, 2)}` });
    return work;
  };
  /** @param {number} head @param {number} word @param {number} key_word @returns {import("./expand.js").CellDerivation} */
  const products = (head, word, key_word) => {
    const [piece, token] = [words[word].tokens[0], words[key_word].tokens[0]];
    const work = expand_products(query.subarray(at(head, piece), at(head, piece) + head_size), key.subarray(at(head, token), at(head, token) + head_size),
      (d) => `d${d}: q · k`, row(head, word).dots[0][token]);
    if (page.focus.query_from && word === page.focus.word && head === page.focus.layer * heads + page.focus.head) work.lines.push(query_from(work, piece));
    return work;
  };
  const [query_input, key_input] = [page.focus.query_input, page.focus.key_input].map(float32s);
  /** Adds the factors that the file leaves out, which are in x. @param {any[]} from @param {Float32Array} x @returns {any} */
  const from_of = (from, x) => (from ?? null) && from.map(({ largest, others, bias }) =>
    ({ others, bias, largest: largest.map((/** @type {number[]} */ [i, parameter]) => [i, x[i], Math.fround(parameter)]) }));
  /** The sum behind the query's element in the largest product. @param {import("./expand.js").CellDerivation} work @param {number} piece */
  const query_from = (work, piece) => {
    const d = work.terms.reduce((best, term, i) => (Math.abs(term.product) > Math.abs(work.terms[best].product) ? i : best), 0);
    const { largest, others, bias } = from_of(page.focus.query_from, query_input)[d];
    const added = (/** @type {number} */ x) => (x < 0 ? `(${plain_number(x, 2)})` : plain_number(x, 2));
    const terms = largest.map((/** @type {number[]} */ [i, x, w]) => `${added(x * w)} (x[${i}] · W_query[${i}, ${(page.focus.head * head_size) + d}])`).join(" + ");
    return { name: `q[${d}]`, text: `${plain_number(query[at(page.focus.layer * heads + page.focus.head, piece) + d], 2)} = ${terms} + ${added(others)} (${width - largest.length} others) + ${added(bias)} (bias)` };
  };
  const base = { style: two_decimals, is_weight: false, adds_up: false, total: null, expand: null, missing };
  /** @type {import("./attention.js").Attention} */
  const attention = { name: "sentence", term: "attention weights", symbol: "A", document_name: "", by_columns: false,
    num_heads: layers * heads, has_heads: true, num_queries: words.length, num_keys: words.length,
    kept_queries: words.map((_, i) => i), query_labels: labels, key_labels: labels, has_words: true,
    special: words.map((w) => w.special), head_name: (head) => `layer ${Math.floor(head / heads)}, head ${head % heads}`,
    columns: [
      { ...base, stage: stage_index.compare, name: "q_dot_k", symbol: "", means: "q · k", title: `${head_size} products`,
        at: (h, i, j) => row(h, i).dots[0][words[j].tokens[0]], expand: products },
      { ...base, stage: stage_index.scale, name: "score", symbol: "", means: `÷ √${head_size}`, title: "scaled scores", at: score,
        expand: (h, i, j) => ({ terms: [], kind: "products", result: score(h, i, j), lines: [{ name: "scaled",
          text: `${plain_number(row(h, i).dots[0][words[j].tokens[0]], 2)} / √${head_size} = ${plain_number(score(h, i, j), 2)}` }] }) },
      { ...base, stage: stage_index.softmax, name: "exponential", symbol: "", title: "exponentials", adds_up: true, total,
        means: (h, i) => (shift_of(row(h, i).scores[0]) === 0 ? "e^(x)" : "e^(x − m)"),
        at: (h, i, j) => Math.exp(score(h, i, j) - shift_of(row(h, i).scores[0])), expand: share },
      ...(data.before ? [{ ...base, stage: stage_index.softmax, name: "before", symbol: "", means: "before", title: "the weight with nothing hidden", of_hidden: true,
        missing: (/** @type {number} */ h, /** @type {number} */ i) => i !== page.focus.word || h !== page.focus.layer * heads + page.focus.head,
        at: (/** @type {number} */ _h, /** @type {number} */ _i, /** @type {number} */ j) => data.before.words[j].weight }] : []),
      { ...base, missing: undefined, stage: stage_index.softmax, name: "weight", symbol: "", means: "weight", title: "attention weights", is_weight: true,
        adds_up: true, at: (h, i, j) => row(h, i).words[j],
        expand: (h, i, j) => (missing(h, i, j) ? pieces_work(h, i, j) : share(h, i, j)) }],
    contribution: { ...base, missing: undefined, stage: stage_index.mix, name: "contribution", symbol: "", means: "contribution", title: "contribution: L2 norm of weight · value after W_output", at: contribution },
    hidden: is_hidden, ...(causal ? { later: (/** @type {number} */ word, /** @type {number} */ key_word) => key_word > word } : {}),
    mix: { value_symbol: "v", context_symbol: "context", value_style: two_decimals, context_style: two_decimals, width: head_size,
      value: (head, key_word, word) => {
        const weight = row(head, word).words[key_word];
        return weight > 0 ? weighted_values(head, word, key_word).map((x) => x / weight) : new Float64Array(head_size);
      },
      context: (head, word) => {
        const sum = new Float64Array(head_size);
        for (let w = 0; w < words.length; ++w) weighted_values(head, word, w).forEach((x, d) => { sum[d] += x; });
        return sum;
      }, expand: null },
    context_name: `output of this head (${head_size} elements) for`, equations: [rotated ? "q = x · W_query + b, rotated\nk = x · W_key + b, rotated\nv = x · W_value + b" : "q = x · W_query + b\nk = x · W_key + b\nv = x · W_value + b", "q · k, dimension by dimension", `x = q · k / √${head_size}`, "weights = softmax(x), row by row", "context = weights · V"],
    symbols: ["", "", "", "weights", "context"], projects: true, projections: [], stage_steps: [], digits: 2,
    row_max: (head, word) => shift_of(row(head, word).scores[0]) || NaN, documented: 0 };

  /** @param {number} head @param {number} word @param {number} key_word @returns {Projected[]} */
  const projected = (head, word, key_word) => {
    const { focus } = page;
    const of_layer = Math.floor(head / heads) === focus.layer;
    const of_head = head === focus.layer * heads + focus.head;
    const [query_token, key_token] = [words[word].tokens[0], words[key_word].tokens[0]];
    const is_own = word === focus.word;
    const is_attended = key_word === focus.key_word;
    const inputs = { query: of_layer && is_own ? query_input : null, key: of_layer && is_attended ? key_input : null };
    return [
      { kind: "query", symbol: "q", parameters: "W_query", word, token: query_token, x: inputs.query,
        numbers: query.subarray(at(head, query_token), at(head, query_token) + head_size), from: of_head && is_own ? from_of(focus.query_from, query_input) : null },
      { kind: "key", symbol: "k", parameters: "W_key", word: key_word, token: key_token, x: inputs.key,
        numbers: key.subarray(at(head, key_token), at(head, key_token) + head_size), from: of_head && is_attended ? from_of(focus.key_from, key_input) : null },
      { kind: "value", symbol: "v", parameters: "W_value", word: key_word, token: key_token, x: inputs.key,
        numbers: value.subarray(at(head, key_token), at(head, key_token) + head_size), from: of_head && is_attended ? from_of(focus.value_from, key_input) : null }];
  };

  /** A word of several pieces: their weights add up. @param {number} head @param {number} word @param {number} key_word @returns {import("./expand.js").CellDerivation} */
  function pieces_work(head, word, key_word) {
    const { weights } = row(head, word);
    /** @type {import("./expand.js").CellDerivation} */
    const work = { terms: [], lines: [], result: row(head, word).words[key_word], kind: "products" };
    for (const t of words[key_word].tokens) {
      for (const [p, piece] of words[word].tokens.entries()) {
        add_term(work, `${data.tokens[piece]} → ${data.tokens[t]}${weights.length > 1 ? `, ÷ ${weights.length} pieces` : ""}`, [], weights[p][t] / weights.length);
      }
    }
    return work;
  }

  return { data, words, labels, layers, heads, head_size, width, hidden, causal, rotated, noun: causal ? "token" : "word", row, contribution, focus: page.focus, attention, projected,
    thumbnails: page.thumbnails ? new Uint8Array(decoded(page.thumbnails)) : null,
    thumbnail_maxima: page.thumbnail_maxima ? float32s(page.thumbnail_maxima) : new Float32Array() };
}
