// SPDX-License-Identifier: Apache-2.0
//
// Heads of any sequence length: a pooled map of the selected head, each cell the mean of its weights, in logarithmic or
// linear colors; below it the attention that each strip of keys receives; and a table of heads, which selects one.
//
//     arrow keys or the pointer select a cell, which is described in words below
//
// Read next: src/explain/arrays/inspection_html.cpp, docs/guide/inspection.md.
import { styled_number } from "./numbers.js";
import { channels_of, el, shown } from "./elements.js";
import { decoded } from "./sentence.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {{batch: number, head: number, heavy_hitters: number[], share: number[], uniform: number[], tracked_shares: number[], entropy: number, largest_weight: number, mean_distance: number}} InspectedHead */
/**
 * @typedef {object} Inspected
 * @property {number} queries
 * @property {number} keys
 * @property {number[]} rows edges of the strips of queries
 * @property {number[]} columns edges of the strips of keys
 * @property {number[]} tracked_keys
 * @property {InspectedHead[]} heads
 * @property {boolean} batches whether heads are of several batch entries
 * @property {(head: number) => Float32Array} map
 */

const map_decades = 4;
const strip_height = 64;

/** @param {any} data "inspection" @param {any} page "page" @returns {Inspected} */
export function read_inspection(data, page) {
  const [rows, columns] = [page.row_edges, page.column_edges];
  const cells = (rows.length - 1) * (columns.length - 1);
  const maps = new Float32Array(decoded(page.maps));
  return { queries: data.queries, keys: data.keys, rows, columns, tracked_keys: data.tracked_keys ?? [], heads: data.heads,
    batches: data.heads[data.heads.length - 1].batch > 0, map: (head) => maps.subarray(head * cells, (head + 1) * cells) };
}

/** With four digits of x where it is small. @param {number} x */
function small_number(x) {
  if (typeof x !== "number" || !Number.isFinite(x)) return "nan";
  const digits = x > 0 && x < 1e-3 ? Math.min(12, 3 - Math.floor(Math.log10(x))) : 4;
  return styled_number(x, { digits, scientific: x > 0 && x < 1e-9 });
}

/** @param {InspectedHead} one @param {boolean} batches */
function head_name(one, batches) {
  return batches ? `batch ${one.batch}, head ${one.head}` : `head ${one.head}`;
}

/** "key 7", "keys 0–38". @param {string} what @param {string} many @param {number} from @param {number} to */
function span_of(what, many, from, to) {
  return to - from === 1 ? `${what} ${from}` : `${many} ${from}–${to - 1}`;
}

/** The title of a page without rows. @param {Inspected} s */
export function inspection_finding(s) {
  const heads = s.heads.filter((one) => one.heavy_hitters.length > 0 && typeof one.share[0] === "number");
  if (heads.length === 0) return "No key receives weight";
  const most = heads.reduce((best, one) => (one.share[0] > best.share[0] ? one : best));
  const name = head_name(most, s.batches);
  return `${name.slice(0, 1).toUpperCase()}${name.slice(1)} gives ${small_number(most.share[0])} of its attention to key\u00a0${most.heavy_hitters[0]} (uniform over the visible keys of each query: ${small_number(most.uniform[0])})`;
}

/** The selection within the figure, in addition to the state of the page. */
const chosen = { linear: false, row: 0, column: 0 };

/**
 * @param {Inspected} s
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function inspection_figure(s, state, set) {
  const one = s.heads[state.head];
  const map = s.map(state.head);
  const [rows, columns] = [s.rows.length - 1, s.columns.length - 1];
  let largest = 0;
  for (const x of map) if (x > largest) largest = x;
  /** The share of the head's attention that each strip of keys receives. */
  const received = Array.from({ length: columns }, (_, b) => {
    let sum = 0;
    for (let a = 0; a < rows; ++a) sum += map[a * columns + b] * (s.rows[a + 1] - s.rows[a]);
    return (sum * (s.columns[b + 1] - s.columns[b])) / s.queries;
  });
  const most_received = received.reduce((most, x) => (x > most ? x : most), 0);

  const scale = Math.max(1, Math.floor(720 / Math.max(rows, columns)));
  const tall = Math.max(rows, Math.min(columns, 24));
  const canvas = el("canvas", { class: "coarse", width: columns * scale, height: Math.max(rows * scale, tall), tabindex: 0, role: "img", "data-focus": "coarse",
    "aria-label": `pooled map of ${head_name(one, s.batches)}: ${rows} strips of queries down, ${columns} strips of keys across; arrow keys move between cells` });
  const strip = el("canvas", { class: "coarse strip-of-keys", width: columns * scale, height: strip_height, "aria-hidden": "true" });
  const readout = el("p", { class: "readout", "aria-live": "polite" });
  chosen.row = Math.min(chosen.row, rows - 1);
  chosen.column = Math.min(chosen.column, columns - 1);

  const say = () => {
    const { row: a, column: b } = chosen;
    const x = map[a * columns + b];
    const cells = (s.rows[a + 1] - s.rows[a]) * (s.columns[b + 1] - s.columns[b]);
    const keys = span_of("key", "keys", s.columns[b], s.columns[b + 1]);
    readout.textContent = `${span_of("query", "queries", s.rows[a], s.rows[a + 1])} → ${keys}: ${cells === 1 ? "weight" : "mean weight"} ${small_number(x)}. All queries together give ${small_number(received[b])} of the head’s attention to ${keys}.`;
  };
  const paint = () => {
    const drawing = canvas.getContext("2d");
    const below = strip.getContext("2d");
    if (!drawing || !below) return;
    const style = getComputedStyle(canvas);
    const [full, back, line, frame] = [style.color, style.backgroundColor, style.borderTopColor, style.outlineColor].map(channels_of);
    const height = canvas.height / rows;
    const small = el("canvas", { width: columns, height: rows });
    const pixels = small.getContext("2d")?.createImageData(columns, rows);
    if (!pixels) return;
    for (const [at, x] of map.entries()) {
      const share = Number.isNaN(x) ? 1 : x > 0 ? Math.max(0, Math.min(1, chosen.linear ? x / largest : 1 + Math.log10(x / largest) / map_decades)) : 0;
      const hatched = x === 0 && (Math.floor(at / columns) * scale + (at % columns) * scale) % 8 < scale;
      for (let c = 0; c < 3; ++c) pixels.data[4 * at + c] = hatched ? line[c] : back[c] + (full[c] - back[c]) * share;
      pixels.data[4 * at + 3] = 255;
    }
    small.getContext("2d")?.putImageData(pixels, 0, 0);
    drawing.imageSmoothingEnabled = false;
    drawing.drawImage(small, 0, 0, canvas.width, canvas.height);
    drawing.strokeStyle = `rgb(${frame.join(" ")})`;
    drawing.lineWidth = 2;
    drawing.strokeRect(chosen.column * scale - 2, chosen.row * height - 2, scale + 4, height + 4);
    below.clearRect(0, 0, strip.width, strip.height);
    below.fillStyle = `rgb(${full.join(" ")})`;
    for (const [b, x] of received.entries()) {
      const bar = most_received > 0 ? (x / most_received) * (strip_height - 2) : 0;
      below.fillRect(b * scale, strip_height - bar, scale, bar);
    }
  };
  const again = () => {
    say();
    paint();
  };
  /** @param {PointerEvent} event */
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    chosen.column = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns)));
    chosen.row = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows)));
    again();
  };
  canvas.addEventListener("pointermove", under);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -columns], End: [0, columns], PageUp: [-10, 0], PageDown: [10, 0] };
    const move = /** @type {Record<string, number[]>} */ (moves)[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    chosen.row = Math.min(rows - 1, Math.max(0, chosen.row + move[0]));
    chosen.column = Math.min(columns - 1, Math.max(0, chosen.column + move[1]));
    again();
    event.preventDefault();
    event.stopPropagation();
  });
  requestAnimationFrame(paint);
  say();

  const low = chosen.linear ? "0" : small_number(largest / 10 ** map_decades);
  const legend = el("p", { class: "legend" }, el("span", { class: "end" }, chosen.linear || largest === 0 ? "0" : `${low} or less`), el("span", { class: "ramp", "aria-hidden": "true" }),
    el("span", { class: "end" }, small_number(largest)), el("span", {}, chosen.linear ? "linear" : "logarithmic"),
    el("span", { class: "hatch-key" }, el("i", { class: "hatched" }), " no weight"),
    el("button", { "data-focus": "map scale", "aria-pressed": String(chosen.linear), click: () => {
      chosen.linear = !chosen.linear;
      set({});
    } }, chosen.linear ? "logarithmic colors" : "linear colors"));
  return el("div", { class: "inspection" }, el("p", { class: "axes" }, `${head_name(one, s.batches)} · query ↓ key → · each cell is the mean of its weights`), canvas, strip,
    el("p", { class: "caption" }, `The share of attention that keys receive from all queries; the largest share, ${small_number(most_received)}, belongs to ${span_of("key", "keys", ...strip_edges(s, received, most_received))}.`),
    readout, legend, el("div", { class: "scroll", tabindex: 0 }, inspected_table(s, state, set)));
}

/** @param {Inspected} s @param {number[]} received @param {number} most @returns {[number, number]} */
function strip_edges(s, received, most) {
  const b = Math.max(0, received.indexOf(most));
  return [s.columns[b], s.columns[b + 1]];
}

/**
 * @param {Inspected} s
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
function inspected_table(s, state, set) {
  const column = (/** @type {string} */ text) => el("th", { scope: "col" }, text);
  const fixed = (/** @type {number} */ x, /** @type {number} */ digits) => el("td", {}, typeof x === "number" ? styled_number(x, { digits, scientific: false }) : "nan");
  return el("table", { class: "inspected-heads" }, el("caption", {}, "All heads: shares and means over their queries. Choose one to see its map."),
    el("thead", {}, el("tr", {}, column("head"), ...s.tracked_keys.map((key) => column(`key ${key}`)), column("entropy"), column("largest"), column("distance"), column("heavy hitters and their shares"))),
    el("tbody", {}, ...s.heads.map((one, n) => el("tr", { class: n === state.head ? "chosen" : null },
      el("th", { scope: "row" }, el("button", { "data-focus": `inspected ${n}`, "aria-pressed": String(n === state.head), "aria-label": head_name(one, s.batches), click: () => set({ head: n, open: "" }) },
        shown(s.batches ? `${one.batch}, ${one.head}` : String(one.head)))),
      ...one.tracked_shares.map((x) => fixed(x, 4)), fixed(one.entropy, 2), fixed(one.largest_weight, 4), fixed(one.mean_distance, 1),
      el("td", { class: "hitters" }, one.heavy_hitters.map((key, i) => `${key}:\u00a0${small_number(one.share[i])}`).join(" · "))))));
}
