// SPDX-License-Identifier: Apache-2.0
//
// All heads on the same sequence at one snapshot: small maps, layers down and heads across, and one head enlarged, with
// the tokens and with frames around the expected keys. Only pixels and texts change from snapshot to snapshot.
//
//     weight w ─▶ byte ─▶ color at √w of the scale: uniform rows remain visible, and all snapshots are comparable
//
// Read next: training.js, training_page.js.
import { styled_number, two_decimals } from "./numbers.js";
import { channels_of, el, shown } from "./elements.js";
import { hatching_of } from "./map_figure.js";
import { compared_score, head_label, token_label } from "./training.js";

/** @typedef {import("./training.js").Training} Training */
/** @typedef {import("./state.js").State} State */
/** @typedef {{element: HTMLElement, update: (state: State) => void}} LiveFigure */

const largest_map = 440;
const largest_map_below = 560;
const stacked_below = 992;
const most_heads_beside = 4;
const cell_with_number = 30;
const label_pitch_of_maps = 13;
const letter_width = 7;
const dominant = 0.5;
/** @type {Record<string, string>} */
const habit_in_words = { pattern: "the pattern", previous: "the previous token", first: "the first token" };

/** The cell of the enlarged map that is described in words; kept from snapshot to snapshot. */
const cell_chosen = { row: -1, key: -1 };

/** The pixel of each byte. @param {Element} element with the colors of the scale */
function pixels_of(element) {
  const style = getComputedStyle(element);
  const [ink, paper] = [style.color, style.backgroundColor].map(channels_of);
  const bytes = new Uint8ClampedArray(4 * 256);
  for (let byte = 0; byte < 256; ++byte) {
    for (let c = 0; c < 3; ++c) bytes[4 * byte + c] = paper[c] + (ink[c] - paper[c]) * Math.sqrt(byte / 255);
    bytes[4 * byte + 3] = 255;
  }
  return new Uint32Array(bytes.buffer);
}

/** @param {CanvasRenderingContext2D} context @param {ImageData} picture @param {Uint8Array} weights @param {Uint32Array} pixels */
function paint_triangle(context, picture, weights, pixels) {
  const side = picture.width;
  const painted = new Uint32Array(picture.data.buffer);
  let at = 0;
  for (let row = 0; row < side; ++row) for (let key = 0; key <= row; ++key, ++at) painted[row * side + key] = pixels[weights[at]];
  context.putImageData(picture, 0, 0);
}

/** Whether a layer has so many heads that the enlarged one is below the maps. @param {Training} t */
export function is_stacked(t) {
  return t.heads > most_heads_beside;
}

/** What the head mostly attends to. @param {Training} t @param {number} snapshot @param {number} head */
function habit_of(t, snapshot, head) {
  /** @type {[import("./training.js").ScoreName, string][]} */
  const habits = [["pattern", "pattern"], ["previous", "previous"], ["sink", "first"]];
  for (const [name, text] of habits) if (t.score(snapshot, head, name) > dominant) return text;
  return "\u00a0";
}

/**
 * @param {Training} t
 * @param {(change: Partial<State>) => void} set
 * @returns {LiveFigure}
 */
export function small_maps(t, set) {
  const figure = el("div", { class: "heads grid training-heads", role: "group", "aria-label": "all heads: choose one" });
  figure.style.setProperty("--heads", String(t.heads));
  figure.style.setProperty("--layers", String(t.layers));
  const side = t.tokens.length;
  const maps = Array.from({ length: t.num_heads }, (_, head) => {
    const canvas = el("canvas", { width: side, height: side, "aria-hidden": "true" });
    const number = el("span", { class: "largest" });
    const habit = el("span", { class: "head-pair" });
    const button = el("button", { "data-focus": `training map ${head}`, click: () => set({ head }) }, canvas,
      el("span", { class: "head-name" }, `H${head % t.heads} `, number), habit);
    if (head % t.heads === 0) figure.append(el("span", { class: "layer" }, `layer ${head / t.heads}`));
    figure.append(button);
    const context = canvas.getContext("2d");
    return { button, number, habit, context, picture: context?.createImageData(side, side) };
  });
  /** @type {Uint32Array | null} */
  let pixels = null;
  return { element: el("div", { class: "scroll" }, figure), update: (state) => {
    pixels ??= pixels_of(figure);
    const snapshot = t.kept[state.snapshot];
    for (const [head, map] of maps.entries()) {
      const score = styled_number(t.score(snapshot, head, compared_score(t)), two_decimals);
      const habit = habit_of(t, snapshot, head);
      map.number.textContent = score;
      map.habit.textContent = habit;
      map.button.setAttribute("aria-pressed", String(head === state.head));
      map.button.setAttribute("aria-label", `layer ${Math.floor(head / t.heads)}, head ${head % t.heads}: score ${score}${habit.trim() === "" ? "" : `, mostly ${habit_in_words[habit]}`}`);
      if (map.context && map.picture && t.has_weights) paint_triangle(map.context, map.picture, t.weights(state.snapshot, head), pixels);
    }
  } };
}

/**
 * Tokens along the enlarged map, as many as fit, always with the row under the glass.
 * @param {Training} t
 * @param {number} pitch pixels from one to the next
 * @param {"down" | "across"} direction
 */
function token_names(t, pitch, direction) {
  const each = Math.max(1, Math.ceil(label_pitch_of_maps / pitch));
  const chosen = direction === "down" ? t.query : -1;
  return t.tokens.map((text, i) => {
    const near = chosen >= 0 && i !== chosen && Math.abs(i - chosen) < each;
    if (i !== chosen && (i % each !== 0 || near)) return null;
    const name = el("span", { class: `token-name ${direction} ${i === chosen ? "chosen" : ""}`.trim(), "aria-hidden": "true" }, el("bdi", {}, shown(text)));
    name.style.setProperty("--at", `${((i + 0.5) * pitch).toFixed(1)}px`);
    return name;
  });
}

/** Hatching over hidden keys, frames around expected keys and around the row under the glass. @param {Training} t @param {HTMLCanvasElement} canvas @param {number} cell @param {number} scale */
function overlay_of(t, canvas, cell, scale) {
  const overlay = el("canvas", { width: canvas.width, height: canvas.height });
  const context = overlay.getContext("2d");
  if (!context) return overlay;
  const style = getComputedStyle(canvas);
  const size = cell * scale;
  const hatching = hatching_of(context, style.borderTopColor);
  if (hatching) context.fillStyle = hatching;
  for (const row of t.tokens.keys()) context.fillRect((row + 1) * size, row * size, canvas.width, size);
  context.strokeStyle = style.outlineColor;
  context.lineWidth = scale;
  for (const [row, keys] of t.wanted.entries()) for (const key of keys) context.strokeRect(key * size - scale / 2, row * size - scale / 2, size + scale, size + scale);
  if (t.query >= 0) {
    context.strokeStyle = style.caretColor;
    context.lineWidth = 2 * scale;
    const top = Math.max(scale, t.query * size - scale), bottom = Math.min(canvas.height - scale, (t.query + 1) * size + scale);
    context.strokeRect(scale, top, Math.min(canvas.width - 2 * scale, (t.query + 1) * size), bottom - top);
  }
  return overlay;
}

/** The weights as numbers, in black or white, whichever is readable on the cell. @param {CanvasRenderingContext2D} context @param {Uint8Array} weights @param {number} side @param {number} size of a cell @param {Uint32Array} pixels */
function write_weights(context, weights, side, size, pixels) {
  const bytes = new Uint8Array(pixels.buffer);
  context.font = `${Math.round(size * 0.34)}px "DejaVu Serif", Georgia, serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  let at = 0;
  for (let row = 0; row < side; ++row) {
    for (let key = 0; key <= row; ++key, ++at) {
      const pixel = 4 * weights[at];
      const luminance = 0.2126 * (bytes[pixel] / 255) ** 2.2 + 0.7152 * (bytes[pixel + 1] / 255) ** 2.2 + 0.0722 * (bytes[pixel + 2] / 255) ** 2.2;
      context.fillStyle = luminance > 0.18 ? "#000" : "#fff";
      context.fillText(styled_number(weights[at] / 255, two_decimals), (key + 0.5) * size, (row + 0.5) * size);
    }
  }
}

/**
 * @param {Training} t
 * @returns {LiveFigure}
 */
export function enlarged_map(t) {
  const side = t.tokens.length;
  const longest = Math.max(...t.tokens.map((text) => shown(text).length));
  const gutter = Math.min(84, Math.max(14, longest * letter_width + 4));
  const page_width = document.documentElement.clientWidth;
  const available = Math.min(page_width < stacked_below || is_stacked(t) ? largest_map_below : largest_map, page_width - 40 - gutter);
  const cell = Math.max(1, Math.floor(available / side));
  const scale = Math.max(1, Math.round(window.devicePixelRatio));
  const canvas = el("canvas", { class: "enlarged", width: side * cell * scale, height: side * cell * scale, tabindex: 0, role: "img", "data-focus": "enlarged" });
  canvas.style.width = `${side * cell}px`;
  const small = el("canvas", { width: side, height: side });
  const frame = el("div", { class: "enlarged-frame" }, ...token_names(t, cell, "down"), ...token_names(t, cell, "across"), canvas);
  frame.style.setProperty("--gutter", `${gutter}px`);
  const title = el("h3", {});
  const numbers = el("p", { class: "caption" });
  const readout = el("p", { class: "readout" });
  /** @type {State | null} */
  let last = null;
  /** @type {HTMLCanvasElement | null} */
  let overlay = null;
  /** @type {Uint32Array | null} */
  let pixels = null;
  const picture = small.getContext("2d")?.createImageData(side, side);

  const say = () => {
    if (!last) return;
    const weights = t.weights(last.snapshot, last.head);
    if (cell_chosen.row < 0 || cell_chosen.row >= side) {
      cell_chosen.row = t.query >= 0 ? t.query : side - 1;
      cell_chosen.key = t.wanted[cell_chosen.row][0] ?? Math.max(0, cell_chosen.row - 1);
    }
    const { row, key } = cell_chosen;
    const weight = weights[(row * (row + 1)) / 2 + key] / 255;
    const target = t.targets[row];
    readout.textContent = key > row ? `${token_label(t, row)} cannot attend to ${token_label(t, key)}, which follows it.`
      : `${token_label(t, row)} → ${token_label(t, key)}: ${styled_number(weight, two_decimals)}${t.wanted[row].includes(key) ? ", an expected key" : ""}${target === null ? "" : `. Next token to predict: “${shown(target)}”`}`;
  };
  const paint = () => {
    const context = canvas.getContext("2d");
    const under = small.getContext("2d");
    if (!last || !context || !under || !picture) return;
    pixels ??= pixels_of(canvas);
    overlay ??= overlay_of(t, canvas, cell, scale);
    paint_triangle(under, picture, t.weights(last.snapshot, last.head), pixels);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    if (cell >= cell_with_number) write_weights(context, t.weights(last.snapshot, last.head), side, cell * scale, pixels);
    context.drawImage(overlay, 0, 0);
    if (document.activeElement === canvas) {
      const size = cell * scale;
      context.strokeStyle = getComputedStyle(canvas).caretColor;
      context.lineWidth = 2 * scale;
      context.strokeRect(cell_chosen.key * size, cell_chosen.row * size, size, size);
    }
  };
  const again = () => {
    say();
    paint();
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (/** @type {number} */ offset, /** @type {number} */ size) => Math.min(side - 1, Math.max(0, Math.floor((offset / size) * side)));
    cell_chosen.row = at(event.clientY - box.top, box.height);
    cell_chosen.key = at(event.clientX - box.left, box.width);
    again();
  });
  canvas.addEventListener("keydown", (event) => {
    const move = /** @type {Record<string, number[]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] })[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    cell_chosen.row = Math.min(side - 1, Math.max(0, cell_chosen.row + move[0]));
    cell_chosen.key = Math.min(cell_chosen.row, Math.max(0, cell_chosen.key + move[1]));
    readout.setAttribute("aria-live", "polite");
    again();
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", paint);
  canvas.addEventListener("blur", () => {
    readout.removeAttribute("aria-live");
    paint();
  });

  const legend = el("p", { class: "legend" }, el("span", { class: "end" }, "0"), el("span", { class: "ramp rooted", "aria-hidden": "true" }), el("span", { class: "end" }, "1"),
    el("span", { class: "hatch-key" }, el("i", { class: "hatched" }), " hidden"), t.has_pattern ? el("span", { class: "wanted-key" }, el("i", {}), " expected key") : null, t.query >= 0 ? el("span", { class: "glass-key" }, el("i", {}), " row shown in detail") : null);
  const element = el("div", { class: "enlarged-head" }, title, numbers, el("div", { class: "scroll" }, frame), readout, legend);
  return { element, update: (state) => {
    last = state;
    const snapshot = t.kept[state.snapshot];
    const number = (/** @type {import("./training.js").ScoreName} */ name) => styled_number(t.score(snapshot, state.head, name), two_decimals);
    title.textContent = `Layer ${Math.floor(state.head / t.heads)}, head ${state.head % t.heads} at step ${t.steps[snapshot]}`;
    numbers.textContent = `${t.has_pattern ? `score ${number("pattern")} · ` : ""}previous token ${number("previous")} · first token ${number("sink")} · entropy ${number("entropy")}`;
    canvas.setAttribute("aria-label", `weights of ${head_label(t, state.head)} at step ${t.steps[snapshot]}, queries down, keys across; arrow keys move between cells, which are described below`);
    again();
  } };
}
