// SPDX-License-Identifier: Apache-2.0
//
// All heads as small maps, each scaled to its own maximum: by layer and head as a grid, or in the order of one number,
// which is shown below each map with its words. Choosing a map shows its head in the figures above.
// Read next: sentence.js.
import { styled_number, two_decimals } from "./numbers.js";
import { channels_of, el, shown, spoken } from "./elements.js";
import { slice } from "./map_figure.js";

/** @typedef {import("./sentence.js").Sentence} Sentence */
/** @typedef {import("./state.js").State} State */

const clear = 0.3;

/** @typedef {{word: number, target: number, value: number}} Pair */

/**
 * The word, not a special token, that the query attends to most in a head.
 * @param {Sentence} s
 * @param {number} head
 * @param {number} query
 */
function largest_key(s, head, query) {
  const weights = s.row(head, query).words;
  let best = { word: 0, weight: -1 };
  for (const [i, w] of s.words.entries()) {
    if (!w.special && i !== query && weights[i] > best.weight) best = { word: i, weight: weights[i] };
  }
  return best;
}

/**
 * A head's map, painted in the colors of the page.
 * @param {Sentence} s
 * @param {number} head
 * @param {HTMLCanvasElement} canvas
 * @param {number[][]} colors paper and ink
 * @returns {number} its largest weight
 */
function paint(s, head, canvas, colors) {
  const context = canvas.getContext("2d");
  const side = canvas.width;
  let most = 0;
  /** @type {(row: number, column: number) => number} */
  let share;
  if (s.thumbnails) {
    const thumbnails = s.thumbnails;
    most = s.thumbnail_maxima[head];
    share = (row, column) => thumbnails[(head * side + row) * side + column] / 255;
  } else {
    const rows = s.words.map((_, i) => s.row(head, i).words);
    for (const row of rows) for (const x of row) most = Math.max(most, x);
    share = (row, column) => rows[row][column] / most;
  }
  const picture = context?.createImageData(side, side);
  if (!context || !picture) return most;
  for (let row = 0; row < side; ++row) {
    for (let column = 0; column < side; ++column) {
      const x = share(row, column);
      for (let c = 0; c < 3; ++c) picture.data[4 * (row * side + column) + c] = colors[0][c] + (colors[1][c] - colors[0][c]) * x;
      picture.data[4 * (row * side + column) + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
  return most;
}

/**
 * The pair of words of each head whose weight most exceeds the head's baseline, and by how much: of the word chosen in
 * the command, or of any word. Null if the file does not have them.
 * @param {Sentence} s
 * @returns {Pair[] | null}
 */
function salience_of(s) {
  /** @type {{layer: number, head: number, word: number, target: number, salience: number}[]} */
  const heads = s.data.ranked_heads?.heads ?? [];
  if (heads.length !== s.layers * s.heads) return null;
  /** @type {Pair[]} */
  const pairs = [];
  for (const one of heads) pairs[one.layer * s.heads + one.head] = { word: one.word, target: one.target, value: one.salience };
  return pairs;
}

/** @param {Pair[] | null} pairs */
function one_query(pairs) {
  return pairs !== null && pairs.every((pair) => pair.word === pairs[0].word);
}

/** The order shown: by salience, as in the terminal, until the user chooses another. @param {Sentence} s @param {State} state */
function sort_of(s, state) {
  if (state.sort === "layer" || state.sort === "attended") return state.sort;
  return salience_of(s) ? "salience" : "layer";
}

/**
 * Describes the order and the number below each map.
 * @param {Sentence} s
 * @param {State} state
 */
export function heads_note(s, state) {
  const sort = sort_of(s, state);
  const salience = salience_of(s);
  const name = shown(s.labels[state.query]);
  const others = one_query(salience) && salience ? `“${shown(s.labels[salience[0].word])}” gives another ${s.noun}` : `one ${s.noun} gives another`;
  const order = sort === "salience"
    ? `Largest salience first: the weight that ${others}, minus the head’s baseline at that distance${s.hidden.some(Boolean) ? ", with nothing hidden" : ""}. It is shown below each map, with the ${s.noun}s.`
    : sort === "attended" ? `Largest weight first: the largest weight that “${name}” gives to another ${s.noun}${s.causal ? "" : ", except special tokens"}. It is shown below each map, with that ${s.noun}.`
      : state.filter === "all" ? "Rows are layers, and columns are heads. The number below each map is its largest weight."
        : "In order of layer and head. The number below each map is its largest weight.";
  return el("p", {}, order, " The color scale of each map ends at its own largest weight. Choosing a map shows its head above.");
}

/** Calls when the browser has nothing else to do. @param {() => void} work */
function rest(work) {
  if ("requestIdleCallback" in window) requestIdleCallback(work, { timeout: 100 });
  else setTimeout(work);
}

/** The maps painted so far of a sentence, in the colors of one theme; kept when the page is drawn again. @type {{of: Sentence | null, theme: string, maps: Map<number, {canvas: HTMLCanvasElement, largest: number}>}} */
const painted = { of: null, theme: "", maps: new Map() };

/**
 * @param {Sentence} s
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function heads_figure(s, state, set) {
  const count = s.layers * s.heads;
  const sort = sort_of(s, state);
  const salience = salience_of(s);
  /** @type {Pair[]} */
  const attended = Array.from({ length: count }, (_, head) => {
    const { word, weight } = largest_key(s, head, state.query);
    return { word: state.query, target: word, value: weight };
  });
  const pairs = sort === "salience" && salience ? salience : attended;
  let order = Array.from({ length: count }, (_, head) => head);
  if (state.filter === "clear") order = order.filter((head) => attended[head].value >= clear);
  if (sort !== "layer") order.sort((x, y) => pairs[y].value - pairs[x].value || x - y);
  const grid = sort === "layer" && state.filter === "all";
  const name = shown(s.words[state.query].text);
  /** @param {"sort" | "filter"} what @param {string} value @param {string} text */
  const control = (what, value, text) => el("button", { "data-focus": `${what} ${value}`, "aria-pressed": String((what === "sort" ? sort : state.filter) === value), click: () => set({ [what]: value }) }, text);
  const controls = el("p", { class: "chooser heads-chooser" }, el("span", {}, "order"), salience ? control("sort", "salience", "by salience") : null,
    control("sort", "attended", `by the largest weight of “${name}”`), control("sort", "layer", "by layer and head"),
    el("span", {}, "show"), control("filter", "all", `all ${count}`), control("filter", "clear", `where one ${s.noun} gets ${styled_number(clear, two_decimals)} or more`));
  const figure = el("div", { class: `heads ${grid ? "grid" : "list"}` });
  if (grid) figure.style.setProperty("--heads", String(s.heads));
  const side = s.thumbnails ? 64 : s.words.length;
  const theme = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  if (s !== painted.of || theme !== painted.theme) painted.maps.clear();
  painted.of = s;
  painted.theme = theme;
  /** @type {(() => void)[]} */
  const later = [];
  for (const head of order) {
    const [layer, h] = [Math.floor(head / s.heads), head % s.heads];
    if (grid && h === 0) figure.append(el("span", { class: "layer" }, `L${layer}`));
    const known = painted.maps.get(head);
    const canvas = known?.canvas ?? el("canvas", { width: side, height: side, "aria-hidden": "true" });
    const { word, target, value } = pairs[head];
    const text_of = (/** @type {number} */ w) => shown(s.labels[w] ?? "");
    const number = styled_number(value, two_decimals);
    const largest = el("span", { class: "largest" }, sort !== "layer" ? number : known ? styled_number(known.largest, two_decimals) : "");
    const means = sort === "salience" ? `${text_of(word)} → ${text_of(target)}, salience ${number}` : `${text_of(word)} → ${text_of(target)}, weight ${number}`;
    figure.append(el("button", { "data-focus": `map ${layer} ${h}`, "aria-pressed": String(head === state.head),
      title: `L${layer}H${h}: ${means}`, click: () => set({ head, open: "" }) },
    canvas, el("span", { class: "head-name" }, grid ? spoken(`L${layer}H${h} `) : `L${layer}H${h} `, largest),
    sort === "layer" ? null : el("span", { class: "head-pair" }, el("bdi", {}, sort === "salience" && !one_query(salience) ? `${text_of(word)} → ${text_of(target)}` : `→ ${text_of(target)}`))));
    if (!known) later.push(() => {
      const style = getComputedStyle(figure);
      const colors = [style.backgroundColor, style.borderTopColor].map(channels_of);
      const most = paint(s, head, canvas, colors);
      if (sort === "layer") largest.textContent = styled_number(most, two_decimals);
      painted.maps.set(head, { canvas, largest: most });
    });
  }
  // A few heads at a time, so that the page stays responsive.
  const work = () => {
    if (!figure.isConnected) return;
    for (const end = performance.now() + slice; later.length > 0 && performance.now() < end;) later.shift()?.();
    if (later.length > 0) rest(work);
  };
  rest(work);
  if (order.length === 0) figure.append(el("p", { class: "caption" }, "No head has such a weight."));
  return el("div", {}, controls, el("div", { class: "scroll" }, figure));
}
