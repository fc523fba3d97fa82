// SPDX-License-Identifier: Apache-2.0
//
// All heads: rows are layers, columns heads, L0H0 upper left; small maps, each on its own maximum, which stands beneath.
// Choosing one shows it in the figures above. One line of text sorts and filters them by what the query hears.
// Read next: sentence.js.
import { styled_number, two_decimals } from "./numbers.js";
import { el, shown } from "./elements.js";

/** @typedef {import("./sentence.js").Sentence} Sentence */
/** @typedef {import("./state.js").State} State */

const clear = 0.3;

/**
 * The word, not one of the model's own marks, that a head hears most.
 * @param {Sentence} s
 * @param {number} head
 * @param {number} query
 */
function heard_most(s, head, query) {
  const weights = s.row(head, query).words;
  let best = { word: 0, weight: -1 };
  for (const [i, w] of s.words.entries()) {
    if (!w.special && i !== query && weights[i] > best.weight) best = { word: i, weight: weights[i] };
  }
  return best;
}

/**
 * A head's map, painted in the colours of the page.
 * @param {Sentence} s
 * @param {number} head
 * @param {HTMLCanvasElement} canvas
 * @param {number[][]} colours paper and ink
 * @returns {number} its largest weight
 */
function paint(s, head, canvas, colours) {
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
      for (let c = 0; c < 3; ++c) picture.data[4 * (row * side + column) + c] = colours[0][c] + (colours[1][c] - colours[0][c]) * x;
      picture.data[4 * (row * side + column) + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
  return most;
}

/** The maps painted so far, in the colours of one theme: drawing the page anew takes them over. @type {{theme: string, maps: Map<number, {canvas: HTMLCanvasElement, largest: number}>}} */
const painted = { theme: "", maps: new Map() };

/**
 * @param {Sentence} s
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function heads_figure(s, state, set) {
  const count = s.layers * s.heads;
  const heard = Array.from({ length: count }, (_, head) => heard_most(s, head, state.query));
  let order = Array.from({ length: count }, (_, head) => head);
  if (state.filter === "clear") order = order.filter((head) => heard[head].weight >= clear);
  if (state.sort === "heard") order.sort((x, y) => heard[y].weight - heard[x].weight || x - y);
  const grid = state.sort === "place" && state.filter === "all";
  const name = shown(s.words[state.query].text);
  /** @param {"sort" | "filter"} what @param {string} value @param {string} text */
  const control = (what, value, text) => el("button", { type: "button", "data-focus": `${what} ${value}`, "aria-pressed": String(state[what] === value), click: () => set({ [what]: value }) }, text);
  const controls = el("p", { class: "chooser heads-chooser" }, el("span", {}, "order"), control("sort", "place", "by layer and head"), control("sort", "heard", `by what “${name}” hears`),
    el("span", {}, "show"), control("filter", "all", `all ${count}`), control("filter", "clear", `where one word gets ${styled_number(clear, two_decimals)} or more`));
  const figure = el("div", { class: `heads ${grid ? "grid" : "list"}` });
  if (grid) figure.style.setProperty("--heads", String(s.heads));
  const side = s.thumbnails ? 64 : s.words.length;
  const theme = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  if (theme !== painted.theme) painted.maps.clear();
  painted.theme = theme;
  /** @type {(() => void)[]} */
  const later = [];
  for (const head of order) {
    const [layer, h] = [Math.floor(head / s.heads), head % s.heads];
    if (grid && h === 0) figure.append(el("span", { class: "layer" }, `L${layer}`));
    const known = painted.maps.get(head);
    const canvas = known?.canvas ?? el("canvas", { width: side, height: side, "aria-hidden": "true" });
    const largest = el("span", { class: "largest" }, known ? styled_number(known.largest, two_decimals) : "");
    const { word, weight } = heard[head];
    figure.append(el("button", { type: "button", "data-focus": `map ${layer} ${h}`, "aria-pressed": String(head === state.head),
      "aria-label": `layer ${layer}, head ${h}: ${name} hears ${shown(s.words[word]?.text ?? "")} with ${styled_number(weight, two_decimals)}`,
      title: `L${layer}H${h}: “${name}” → “${shown(s.words[word]?.text ?? "")}” ${styled_number(weight, two_decimals)}`, click: () => set({ head, open: "" }) },
    canvas, el("span", { class: "head-name" }, grid ? null : `L${layer}H${h} `, largest)));
    if (!known) later.push(() => {
      const style = getComputedStyle(figure);
      const colours = [style.backgroundColor, style.borderTopColor].map((text) => (text.match(/[\d.]+/g) ?? []).map(Number));
      const most = paint(s, head, canvas, colours);
      largest.textContent = styled_number(most, two_decimals);
      painted.maps.set(head, { canvas, largest: most });
    });
  }
  // A few heads a frame, so that the page answers meanwhile.
  const work = () => {
    if (!figure.isConnected) return;
    for (const one of later.splice(0, 12)) one();
    if (later.length > 0) requestAnimationFrame(work);
  };
  requestAnimationFrame(work);
  if (order.length === 0) figure.append(el("p", { class: "caption" }, "No head does."));
  return el("div", {}, controls, el("div", { class: "scroll" }, figure));
}
