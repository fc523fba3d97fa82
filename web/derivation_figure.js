// SPDX-License-Identifier: Apache-2.0
//
// An expanded number: its products as a strip of bars above and below a line, with the largest named; or its
// exponential among those of the row; and the sum in words, with a note if its printed digits do not add up.
// Read next: expand.js.
import { printed_units, styled_number, units_text } from "./numbers.js";
import { el, shown, svg } from "./elements.js";

/** @typedef {import("./numbers.js").NumberStyle} NumberStyle */
/** @typedef {import("./expand.js").CellDerivation} CellDerivation */
/** @typedef {import("./expand.js").Term} Term */

/**
 * The range of strips on one scale, 0 included.
 * @param {ArrayLike<number>[]} all
 * @returns {{low: number, high: number}}
 */
export function range_of(all) {
  const range = { low: 0, high: 0 };
  for (const numbers of all) {
    for (let i = 0; i < numbers.length; ++i) {
      if (!Number.isFinite(numbers[i])) continue;
      range.low = Math.min(range.low, numbers[i]);
      range.high = Math.max(range.high, numbers[i]);
    }
  }
  return range;
}

const most_elements = 96;  // of a strip, by default; more bars are two paths

/**
 * Bars above and below a line, one per number: solid above, hollow below.
 * @param {ArrayLike<number>} numbers
 * @param {{width: number, height: number, range?: {low: number, high: number}, kind?: string, ghost?: ArrayLike<number>, label: string, elements?: number}} options
 */
export function strip(numbers, options) {
  const { low, high } = options.range ?? range_of([numbers]);
  const unit = high > low ? (options.height - 2) / (high - low) : 0;
  const zero = 1 + high * unit;
  const pitch = options.width / Math.max(1, numbers.length, options.ghost?.length ?? 0);
  const bar = Math.max(0.8, Math.min(pitch - (pitch > 3 ? 1.5 : 0.4), 26));
  const picture = svg("svg", { class: `strip ${options.kind ?? ""}`.trim(), viewBox: `0 0 ${options.width} ${options.height}`,
    width: options.width, height: options.height, role: "img", "aria-label": options.label, preserveAspectRatio: "none" });
  /** @param {ArrayLike<number>} all @param {string} kind */
  const draw = (all, kind) => {
    const joined = all.length > (options.elements ?? most_elements) ? { above: "", below: "" } : null;
    for (let i = 0; i < all.length; ++i) {
      const x = all[i];
      if (!Number.isFinite(x) || x === 0) continue;
      const height = Math.max(0.6, Math.abs(x) * unit).toFixed(2);
      const side = x > 0 ? "above" : "below";
      const left = (i * pitch + (pitch - bar) / 2).toFixed(2);
      if (joined) joined[side] += `M${left} ${zero.toFixed(2)}h${bar.toFixed(2)}v${x > 0 ? "-" : ""}${height}h-${bar.toFixed(2)}Z`;
      else picture.append(svg("rect", { class: `${kind} ${side}`, x: left, width: bar.toFixed(2), y: (x > 0 ? zero - Number(height) : zero).toFixed(2), height }));
    }
    for (const [side, d] of Object.entries(joined ?? {})) picture.append(svg("path", { class: `${kind} ${side}`, d }));
  };
  if (options.ghost) draw(options.ghost, "ghost");
  draw(numbers, "stick");
  picture.append(svg("line", { class: "zero", x1: 0, x2: options.width, y1: zero.toFixed(2), y2: zero.toFixed(2) }));
  return picture;
}

/**
 * @param {number} x
 * @param {NumberStyle} style
 */
function in_sum(x, style) {
  const text = styled_number(x, style);
  return text.startsWith("−") ? `(${text})` : text;
}

/**
 * "31.2 is 32 products: 9.4 + 6.1 + 4.8 + 29 other terms (10.9)", and the difference by rounding.
 * @param {CellDerivation} work
 * @param {NumberStyle} style
 */
export function sum_in_words(work, style) {
  const { terms } = work;
  // If lines follow, the sum is only an intermediate value.
  const total = work.lines.length > 0 ? terms.at(-1)?.sum ?? 0 : work.result;
  const whole = terms.every((t) => t.factors.every((x) => Number.isInteger(x) && Math.abs(x) < 1e6));
  const few = terms.length <= 5;
  const chosen = few ? terms : [...terms].sort((a, b) => Math.abs(b.product) - Math.abs(a.product)).slice(0, 3);
  const parts = chosen.map((t) => whole && t.factors.length === 2
    ? `${in_sum(t.factors[0], style)}·${in_sum(t.factors[1], style)}` : in_sum(t.product, style));
  // A single term would only repeat the result, so its factors are shown.
  if (terms.length === 1 && terms[0].factors.length === 2 && !whole) {
    parts[0] = terms[0].factors.map((x) => in_sum(x, Number.isInteger(x) ? { digits: 0, scientific: style.scientific } : style)).join(" · ");
  }
  let printed = chosen.reduce((sum, t) => sum + printed_units(t.product, style), 0);
  if (!few) {
    const rest = (terms.at(-1)?.sum ?? 0) - chosen.reduce((sum, t) => sum + t.product, 0);
    parts.push(`${terms.length - chosen.length} other terms (${styled_number(rest, style)})`);
    printed += printed_units(rest, style);
  }
  const excess = printed - printed_units(total, style);
  const kind = terms.some((t) => t.factors.length > 1) ? "product" : "term";
  const count = terms.length === 1 ? `one ${kind}` : `${terms.length} ${kind}s`;
  return `${styled_number(total, style)} is ${terms.length === 1 ? "" : "the sum of "}${count}: ${parts.join(" + ")}` +
    (excess !== 0 && Number.isFinite(excess) && !style.scientific ? ` (rounded figures sum to ${units_text(printed, style)})` : "");
}

/**
 * The bars with the three largest named beneath.
 * @param {CellDerivation} work
 * @param {NumberStyle} style
 * @param {string} [label]
 */
export function products_view(work, style, label = `${work.terms.length} products as bars`) {
  const { terms } = work;
  const named = [...terms.keys()].sort((a, b) => Math.abs(terms[b].product) - Math.abs(terms[a].product))
    .slice(0, 3).filter((i) => terms[i].product !== 0);
  const list = el("ol", { class: "terms" });
  for (const i of named) {
    const { label, factors, product } = terms[i];
    list.append(el("li", {}, el("bdi", { class: "term" }, shown(label)), " = ",
      factors.length > 1 ? `${factors.map((x) => in_sum(x, Number.isInteger(x) ? { digits: 0, scientific: style.scientific } : style)).join(" · ")} = ` : "",
      el("b", {}, styled_number(product, style))));
  }
  const width = Math.max(80, Math.min(520, terms.length * 34));
  return el("div", { class: "products" },
    strip(terms.map((t) => t.product), { width, height: 64, kind: "neutral", label }), list);
}

/**
 * The exponentials of a row end to end, with this one filled.
 * @param {CellDerivation} work
 * @param {string} key the label of the key at hand
 * @param {number} at its index among the terms
 */
function shares_view(work, key, at) {
  const total = work.terms.at(-1)?.sum ?? 0;
  const picture = svg("svg", { class: "shares", viewBox: "0 0 560 18", width: 560, height: 18, role: "img",
    "aria-label": `the exponential of ${shown(key)} among all exponentials of the row`, preserveAspectRatio: "none" });
  let left = 0;
  for (const [i, term] of work.terms.entries()) {
    const width = total > 0 ? (term.product / total) * 560 : 0;
    picture.append(svg("rect", { class: i === at ? "mine" : "other", x: left.toFixed(2), y: 1, width: Math.max(0, width - 1).toFixed(2), height: 16 }));
    left += width;
  }
  return picture;
}

/**
 * @param {CellDerivation} work
 * @param {NumberStyle} style
 * @param {{key?: string, at?: number, more?: {name: string, text: string}[]}} [context] of a share: its key
 */
export function derivation_view(work, style, context = {}) {
  const view = el("div", { class: "work" });
  if (work.kind === "products" && work.terms.length > 0) {
    view.append(el("p", { class: "sum" }, sum_in_words(work, style)), products_view(work, style));
  }
  if (work.kind === "shares" && work.terms.length > 0) view.append(shares_view(work, context.key ?? "", context.at ?? -1));
  const lines = [...(context.more ?? []).map((l) => ({ ...l, narrow: true })), ...work.lines.map((l) => ({ ...l, narrow: false }))];
  if (lines.length > 0) {
    const list = el("dl", {});
    for (const { name, text, narrow } of lines) {
      list.append(el("div", { class: narrow ? "narrow-only" : null }, el("dt", {}, name), el("dd", {}, el("bdi", {}, shown(text)))));
    }
    view.append(list);
  }
  if (work.terms.length === 0 && work.lines.length === 0) view.append(el("p", { class: "sum" }, `exactly ${work.result}`));
  return view;
}
