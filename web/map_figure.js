// SPDX-License-Identifier: Apache-2.0
//
// The whole head: queries down, keys across (transposed if a token is a column), colors from 0 to 1. With few keys the
// cells have numbers; with more they are squares that grow with the weight, so that color is not the only cue; with
// very many they are painted. The row of the other figures is framed; choosing a cell chooses its query.
// Read next: attention.js.
import { styled_number } from "./numbers.js";
import { channels_of, el, shown, word } from "./elements.js";
import { weight_column, weights_of } from "./attention.js";
import { number_text } from "./row_figure.js";
import { make_grid } from "./grid.js";

/** @typedef {import("./attention.js").Attention} Attention */
/** @typedef {import("./state.js").State} State */

const most_with_numbers = 10;
const most_in_table = 40;

/**
 * Which text color is readable on a share of the scale, on light paper and on dark: black or white, whichever has a
 * contrast of 4.5 (page_test measures it for every share).
 * @param {number} share
 */
function shade_class(share) {
  return share > 0.757 ? "deep" : share > 0.596 ? "middle" : "shallow";
}

/** The rows drawn last, kept because the rows of a large head take time. @type {{attention: Attention | null, head: number, rows: Float64Array[]}} */
let known = { attention: null, head: 0, rows: [] };

export const slice = 8;  // milliseconds of work, after which the browser has its turn

/**
 * Computes the rows that the map of a head needs, with a pause after each slice of time.
 * @param {Attention} a
 * @param {number} head
 * @returns {Generator<null, void>}
 */
export function* rows_of(a, head) {
  if (known.attention !== a || known.head !== head) known = { attention: a, head, rows: [] };
  const { rows } = known;
  for (let end = performance.now() + slice; rows.length < a.kept_queries.length;) {
    rows.push(weights_of(a, head, a.kept_queries[rows.length]));
    if (performance.now() < end) continue;
    yield null;
    end = performance.now() + slice;
  }
}

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
export function map_figure(a, state, set) {
  for (const _ of rows_of(a, state.head));
  const { rows } = known;
  let largest = 0;
  for (const row of rows) for (const x of row) if (x > largest) largest = x;
  const end = state.own_scale && largest > 0 ? largest : 1;
  const figure = el("div", { class: "map-figure" });
  const small = Math.max(a.kept_queries.length, a.num_keys) <= most_in_table;
  figure.append(small ? map_table(a, state, set, rows, end) : painted_map(a, state, set, rows, end));
  const weight_style = weight_column(a).style;
  const any_hidden = a.kept_queries.some((i, n) => rows[n].some((x, j) => x === 0 && a.hidden(state.head, i, j)));
  figure.append(el("p", { class: "legend" }, el("span", { class: "end" }, "0"), el("span", { class: "ramp", "aria-hidden": "true" }),
    el("span", { class: "end" }, styled_number(end, end === 1 ? { digits: 0, scientific: false } : weight_style)),
    any_hidden ? el("span", { class: "hatch-key" }, el("i", { class: "hatched" }), " hidden") : null,
    el("button", { "data-focus": "scale", "aria-pressed": String(state.own_scale), click: () => set({ own_scale: !state.own_scale }) },
      state.own_scale ? "scale of 0 to 1" : "scale to its own maximum")));
  return figure;
}

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 * @param {Float64Array[]} rows
 * @param {number} end
 */
function map_table(a, state, set, rows, end) {
  const { head, query } = state;
  const with_numbers = Math.max(rows.length, a.num_keys) <= most_with_numbers;
  const weight_style = weight_column(a).style;
  const short_style = { digits: Math.min(weight_style.digits, 4), scientific: weight_style.scientific };
  const queries = a.kept_queries;
  const keys = Array.from({ length: a.num_keys }, (_, j) => j);
  /** @param {number} n the index of the query @param {number} j */
  const cell = (n, j) => {
    const i = queries[n];
    const x = rows[n][j];
    const hidden = a.hidden(head, i, j);
    const share = Number.isNaN(x) ? 0 : Math.max(0, Math.min(1, x / end));
    const td = el("td", { "data-cell": `map ${i} ${j}`, "data-focus": `map ${i} ${j}`, class: `${hidden ? "hatched" : shade_class(share)} ${i === query ? "framed" : ""}`.trim(),
      "aria-selected": String(i === query), title: with_numbers ? null : `${shown(a.query_labels[i])} → ${shown(a.key_labels[j])}: ${hidden ? "hidden" : styled_number(x, weight_style)}` });
    td.style.setProperty("--share", String(hidden ? 0 : share));
    if (with_numbers) td.append(hidden ? el("span", { class: "hidden-word" }, "hidden") : number_text(x, short_style));
    else td.append(el("span", { class: "spoken" }, hidden ? "hidden" : styled_number(x, weight_style)), hidden ? "" : el("i", { class: "square", "aria-hidden": "true" }));
    return td;
  };
  /** @param {string[]} labels @param {number} index @param {string} kind */
  const label = (labels, index, kind) => word(a.numbered ? String(index) : labels[index], kind);
  /** @param {string[]} labels @param {number} index @param {string} kind @param {number} chosen */
  const header = (labels, index, kind, chosen) => el("th", { scope: "col", class: kind === "query" && index === chosen ? "framed" : null }, el("span", { class: "tilt" }, label(labels, index, kind)));
  const table = el("table", { class: `map ${with_numbers ? "numbers" : "squares"} ${Math.max(rows.length, a.num_keys) > 7 ? "many" : ""} ${a.by_columns ? "by-columns" : ""} ${a.numbered ? "numbered" : ""}`, role: "grid",
    "aria-label": `weights of the whole head, ${a.by_columns ? "keys down, queries across" : "queries down, keys across"}` });
  // The widest map fills the column, except for the labels.
  table.style.setProperty("--cell", `${Math.min(1.5, 36 / Math.max(rows.length, a.num_keys)).toFixed(2)}rem`);
  const corner = el("td", { class: "corner" }, a.by_columns ? "key\u00a0↓ query\u00a0→" : "query\u00a0↓ key\u00a0→");
  if (a.by_columns) {
    table.append(el("thead", {}, el("tr", {}, corner, ...queries.map((i) => header(a.query_labels, i, "query", query)))),
      el("tbody", {}, ...keys.map((j) => el("tr", {}, el("th", { scope: "row" }, label(a.key_labels, j, "key")), ...queries.map((_, n) => cell(n, j))))));
  } else {
    table.append(el("thead", {}, el("tr", {}, corner, ...keys.map((j) => header(a.key_labels, j, "key", query)))),
      el("tbody", {}, ...queries.map((i, n) => el("tr", { class: i === query ? "chosen" : null }, el("th", { scope: "row" }, label(a.query_labels, i, "query")), ...keys.map((j) => cell(n, j))))));
  }
  make_grid(table, (id) => set({ query: Number(id.split(" ")[1]), open: "" }));
  return el("div", { class: "scroll" }, table);
}

/**
 * The hatching of the tables, for a canvas.
 * @param {CanvasRenderingContext2D} context
 * @param {string} color
 */
export function hatching_of(context, color) {
  const tile = el("canvas", { width: 8, height: 8 });
  const drawing = tile.getContext("2d");
  if (!drawing) return null;
  drawing.strokeStyle = color;
  for (const x of [-8, 0, 8]) {
    drawing.moveTo(x - 1, 9);
    drawing.lineTo(x + 9, -1);
  }
  drawing.stroke();
  return context.createPattern(tile, "repeat");
}

/**
 * How `count` rows or columns are painted: the pixels per cell, and the rows or columns per cell if there are too many.
 * @param {number} count
 * @param {number} available pixels
 * @param {number} least pixels of a cell if there is enough space
 * @param {number} most
 */
function cells_of(count, available, least, most) {
  const block = Math.ceil(count / available);
  const cells = Math.ceil(count / block);
  return { block, cells, size: Math.max(Math.min(Math.floor(available / cells), most), Math.min(least, Math.floor((10 * least) / cells)), 1) };
}

const most_shades = 2048;

/**
 * The pixels of the shares from 0 to 1, closer together near 0, where the eye sees small differences.
 * @param {number[]} back
 * @param {number[]} ink
 */
function shades_of(back, ink) {
  const bytes = new Uint8ClampedArray(4 * (most_shades + 1)).fill(255);
  const linear = (/** @type {number} */ x) => (x / 255) ** 2.2;
  for (let i = 0; i <= most_shades; ++i) {
    const share = (i / most_shades) ** 2;
    for (let c = 0; c < 3; ++c) bytes[4 * i + c] = 255 * ((1 - share) * linear(back[c]) + share * linear(ink[c])) ** (1 / 2.2);
  }
  return new Uint32Array(bytes.buffer);
}

/**
 * Takes a row into the largest weight of each block, negative if all its keys are hidden.
 * @param {Float64Array} largest
 * @param {Float64Array} row
 * @param {number} begin the index of its first block
 * @param {number} block keys per block
 * @param {number} step from a block to the next
 * @param {(key: number) => boolean} hidden
 */
function take_row(largest, row, begin, block, step, hidden) {
  for (let j = 0; j < row.length; ++j) {
    const x = row[j] || 0;
    if (x === 0 && hidden(j)) continue;
    const at = begin + Math.floor(j / block) * step;
    if (x > largest[at]) largest[at] = x;
  }
}

/**
 * Colors a line of pixels.
 * @param {Uint32Array} pixels
 * @param {Float64Array} weights
 * @param {number} end of the scale
 * @param {Uint32Array} shades
 */
function shade(pixels, weights, end, shades) {
  for (let i = 0; i < pixels.length; ++i) pixels[i] = shades[(Math.sqrt(Math.max(0, Math.min(1, weights[i] / end))) * most_shades + 0.5) | 0];
}

const label_width = 88;
const label_pitch = 14;

/**
 * The words along a painted map that fit, always with the chosen one.
 * @param {string[]} labels
 * @param {number} pitch pixels from one to the next
 * @param {number} chosen or -1
 * @param {"down" | "across"} direction
 */
function axis_names(labels, pitch, chosen, direction) {
  const each = Math.max(1, Math.ceil(label_pitch / pitch));
  const named = [...labels.keys()].filter((i) => i === chosen || (i % each === 0 && (chosen < 0 || Math.abs(i - chosen) >= each)));
  return named.map((i) => {
    const name = el("span", { class: `axis-name ${direction} ${i === chosen ? "chosen" : ""}`.trim(), "aria-hidden": "true", title: shown(labels[i]) }, el("bdi", {}, shown(labels[i])));
    name.style.setProperty("--at", `${((i + 0.5) * pitch).toFixed(1)}px`);
    return name;
  });
}

/**
 * @param {Attention} a
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 * @param {Float64Array[]} rows
 * @param {number} end
 */
function painted_map(a, state, set, rows, end) {
  const [down, across] = a.by_columns ? [a.num_keys, rows.length] : [rows.length, a.num_keys];
  const frame = a.has_words ? label_width : 0;
  const horizontal = cells_of(across, Math.min(720, window.innerWidth - 40) - frame, 1, 720);
  // Blocks are square unless the map is flat.
  const vertical = cells_of(down, Math.min(1440, Math.max(720, Math.floor(down / horizontal.block))), 16, horizontal.size);
  const [width, height] = [horizontal.cells * horizontal.size, vertical.cells * vertical.size];
  const canvas = el("canvas", { class: "painted", width, height, tabindex: 0, role: "img", "data-focus": "painted",
    "aria-label": `weights of ${rows.length} queries and ${a.num_keys} keys; arrow keys choose the query, whose row is the table above` });
  const readout = el("p", { class: "readout", "aria-live": "polite" }, a.by_columns ? "key ↓ query →" : "query ↓ key →",
    horizontal.block * vertical.block === 1 ? null : ` · each point is the largest of ${vertical.block} × ${horizontal.block} weights`);
  const paint = () => {
    const context = canvas.getContext("2d");
    if (!context) return;
    const style = getComputedStyle(canvas);
    const [ink, back] = [style.color, style.backgroundColor].map(channels_of);
    const largest = new Float64Array(horizontal.cells * vertical.cells).fill(-1);
    const [of_query, of_key] = a.by_columns ? [horizontal, vertical] : [vertical, horizontal];
    const [query_step, key_step] = a.by_columns ? [1, horizontal.cells] : [horizontal.cells, 1];
    for (const [n, row] of rows.entries()) {
      take_row(largest, row, Math.floor(n / of_query.block) * query_step, of_key.block, key_step, (j) => a.hidden(state.head, a.kept_queries[n], j));
    }
    const picture = context.createImageData(horizontal.cells, vertical.cells);
    const shades = shades_of(back, ink);
    const pixels = new Uint32Array(picture.data.buffer);
    for (let at = 0; at < pixels.length; at += horizontal.cells) shade(pixels.subarray(at, at + horizontal.cells), largest.subarray(at), end, shades);
    const small = el("canvas", { width: horizontal.cells, height: vertical.cells });
    small.getContext("2d")?.putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width, height);
    const hatching = hatching_of(context, style.borderTopColor);
    if (hatching) {
      context.fillStyle = hatching;
      for (let y = 0; y < vertical.cells; ++y) {
        for (let x = 0; x < horizontal.cells; ++x) {
          const begin = x;
          while (x < horizontal.cells && largest[y * horizontal.cells + x] < 0) ++x;
          if (x > begin) context.fillRect(begin * horizontal.size, y * vertical.size, (x - begin) * horizontal.size, vertical.size);
        }
      }
    }
    context.strokeStyle = style.outlineColor;
    context.lineWidth = 2;
    const { block, size } = a.by_columns ? horizontal : vertical;
    const at = Math.floor(a.kept_queries.indexOf(state.query) / block) * size;
    if (a.by_columns) context.strokeRect(at - 1, 0, size + 2, height);
    else context.strokeRect(0, at - 1, width, size + 2);
  };
  /** @param {PointerEvent} event */
  const cell_under = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(across - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * horizontal.cells * horizontal.block)));
    const y = Math.min(down - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * vertical.cells * vertical.block)));
    return a.by_columns ? [x, y] : [y, x];
  };
  canvas.addEventListener("pointermove", (event) => {
    const [n, j] = cell_under(event);
    const style = weight_column(a).style;
    canvas.title = readout.textContent = `${shown(a.query_labels[a.kept_queries[n]])} → ${shown(a.key_labels[j])}: ${a.hidden(state.head, a.kept_queries[n], j) ? "hidden" : styled_number(rows[n][j], style)}`;
  });
  canvas.addEventListener("click", (event) => set({ query: a.kept_queries[cell_under(/** @type {PointerEvent} */ (event))[0]], open: "" }));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    if (move === undefined) return;
    const next = a.kept_queries[a.kept_queries.indexOf(state.query) + move];
    if (next !== undefined) set({ query: next, open: "" });
    event.preventDefault();
    event.stopPropagation();
  });
  requestAnimationFrame(paint);
  if (!a.has_words) return el("div", { class: "scroll" }, canvas, readout);
  const queries = a.kept_queries.map((i) => a.query_labels[i]);
  const chosen = a.kept_queries.indexOf(state.query);
  const [rows_named, columns_named] = a.by_columns ? [a.key_labels, queries] : [queries, a.key_labels];
  const names = el("div", { class: "painted-frame" },
    ...axis_names(rows_named, vertical.size / vertical.block, a.by_columns ? -1 : chosen, "down"),
    ...axis_names(columns_named, horizontal.size / horizontal.block, a.by_columns ? chosen : -1, "across"), canvas);
  return el("div", { class: "scroll" }, names, readout);
}

/**
 * The note next to the map: the entropy of the row.
 * @param {Attention} a
 * @param {State} state
 */
export function map_note(a, state) {
  const weights = weights_of(a, state.head, state.query);
  let entropy = 0;
  let seen = 0;
  for (let j = 0; j < a.num_keys; ++j) {
    if (a.hidden(state.head, state.query, j)) continue;
    ++seen;
    if (weights[j] > 0) entropy -= weights[j] * Math.log(weights[j]);
  }
  const sink = a.sink?.(state.head, state.query)?.weight ?? 0;
  if (sink > 0) entropy -= sink * Math.log(sink);
  const style = { digits: 2, scientific: false };
  const shares = seen + (sink > 0 ? 1 : 0);
  const name = a.has_words ? [word(a.query_labels[state.query], "query")] : [`query ${state.query}`];
  if (seen === 0) return el("aside", { class: "note" }, el("p", {}, ...name, " has no visible key, so it has no entropy."));
  if (weights.some(Number.isNaN)) return el("aside", { class: "note" }, el("p", {}, "The weights of ", ...name, " are nan."));
  if (shares < 2) return el("aside", { class: "note" }, el("p", {}, ...name, " has one visible key, so the entropy is 0."));
  return el("aside", { class: "note" },
    el("p", {}, "The framed ", a.by_columns ? "column" : "row", " belongs to ", ...name, " and is shown above."),
    el("p", { class: "entropy" }, "Entropy ", el("b", {}, styled_number(entropy, style)), `; uniform weights over ${seen} keys${sink > 0 ? " and the sink" : ""} would give ln ${shares} = ${styled_number(Math.log(shares), style)}.`));
}
