// SPDX-License-Identifier: Apache-2.0
//
// One word in several sentences: the sentences with the word aligned; its cosines from stage to stage, with the floor of
// all other words and a control that both sentences share; and which heads make the two differ.
//
//     1 ┤━━━━┓___           ━━  the pair chosen       hiding a word moves the lines; the old ones stay as thin lines
//       ┤ ‑ ‑ ‑ ‑ ‑ ‑       ‑‑  the control
//     0 ┤░░░░░░░░░░░        ░░  up to the floor
//       word … L0 … L5
//
// All data is from the JSON of regard compare (docs/guide/compare.md). Read next: page.js.
import { styled_number } from "./numbers.js";
import { el, shown, svg, word } from "./elements.js";
import { strip } from "./derivation_figure.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {{word: string, cosine: any[]}} Control */
/** @typedef {{sentences: [string, string], cosine: any[], controls: Control[], difference: any[], share: any[][]}} Pair */
/** @typedef {{floor: any[], floor_pairs: number, pairs: Pair[]}} Numbers */

const three = { digits: 3, scientific: false };
const most_buttons = 6;
const most_labels = 6;

/** "nan" is the JSON form of an undefined number. @param {unknown} x */
function cosine_of(x) {
  return typeof x === "number" ? x : NaN;
}

/** @param {unknown} x */
function cosine_text(x) {
  return Number.isNaN(cosine_of(x)) ? "–" : styled_number(cosine_of(x), three);
}

/** The control shown with a pair: the first word that all pairs with A share, else the pair's own first. @param {Numbers} numbers @param {Pair} pair */
function control_of(numbers, pair) {
  const with_first = numbers.pairs.filter((one) => one.sentences[0] === "A");
  const shared = numbers.pairs[0].controls.find((c) => with_first.every((one) => one.controls.some((other) => other.word === c.word)));
  return pair.controls.find((c) => c.word === shared?.word) ?? pair.controls[0] ?? null;
}

/** The sentences, one below the other, the word in its own column. @param {any} data */
function aligned_sentences(data) {
  const body = el("tbody");
  for (const sentence of data.sentences) {
    const own = sentence.words.map((/** @type {any} */ w, /** @type {number} */ i) => ({ ...w, text: `${w.text}${w.unknown ? "†" : !w.special && w.tokens.length > 1 ? "‡" : ""}`, i })).filter((/** @type {any} */ w) => !w.special || w.i === sentence.word);
    /** @param {any[]} words */
    const text = (words) => el("bdi", {}, words.map((w) => shown(w.text)).join(" "));
    body.append(el("tr", {}, el("th", { scope: "row" }, sentence.name),
      el("td", { class: "before" }, text(own.filter((/** @type {any} */ w) => w.i < sentence.word))),
      el("td", { class: "middle" }, word(own.find((/** @type {any} */ w) => w.i === sentence.word).text, "query")),
      el("td", { class: "after" }, text(own.filter((/** @type {any} */ w) => w.i > sentence.word)))));
  }
  return el("table", { class: "aligned", "aria-label": "the sentences, aligned at the word" }, body);
}

/** The meaning of the marks after words, and warnings for sentences with many words outside the vocabulary. @param {any} data */
function vocabulary_notes(data) {
  const words = data.sentences.flatMap((/** @type {any} */ sentence) => sentence.words);
  const unknown = words.some((/** @type {any} */ w) => w.unknown);
  const split = words.some((/** @type {any} */ w) => !w.unknown && !w.special && w.tokens.length > 1);
  const marks = [unknown ? "† not in the vocabulary: the model sees [UNK], as for any such word." : "", split ? "‡ split into pieces: its vector is their mean." : ""];
  return [...data.sentences.filter((/** @type {any} */ sentence) => sentence.warning !== undefined)
    .map((/** @type {any} */ sentence) => el("p", { class: "warning" }, `Note: ${sentence.name}: ${shown(sentence.warning)}`)),
  unknown || split ? el("p", { class: "caption" }, marks.filter(Boolean).join(" ")) : null];
}

/** The lines drawn last, by name: the next lines move from there if the picture keeps its size. @type {{width: number, lines: Map<string, string>}} */
let drawn = { width: 0, lines: new Map() };

/**
 * @param {any} data
 * @param {State} state
 * @param {Numbers} numbers
 */
function chart(data, state, numbers) {
  const narrow = document.documentElement.clientWidth < 544;
  const [width, height, left, right, top, bottom] = narrow ? [358, 300, 26, 92, 12, 44] : [720, 340, 34, 120, 12, 30];
  const count = data.stages.length;
  const shown_pairs = numbers.pairs.map((pair, i) => ({ pair, i })).filter(({ pair, i }) => i === state.pair || pair.sentences[0] === "A");
  const all = [numbers.floor, ...shown_pairs.flatMap(({ pair }) => [pair.cosine, ...pair.controls.map((c) => c.cosine)])].flat().map(cosine_of).filter(Number.isFinite);
  const low = Math.min(0, ...all);
  const x = (/** @type {number} */ stage) => left + (stage * (width - left - right)) / Math.max(1, count - 1);
  const y = (/** @type {number} */ cosine) => top + ((1 - cosine) / (1 - low)) * (height - top - bottom);
  /** @param {any[]} cosines */
  const line = (cosines) => cosines.map(cosine_of).map((c, i, them) => (!Number.isFinite(c) ? "" :
    `${i > 0 && Number.isFinite(them[i - 1]) ? "L" : "M"} ${x(i).toFixed(1)} ${y(c).toFixed(1)}`)).join(" ");
  const picture = svg("svg", { class: `chart ${narrow ? "narrow" : ""}`.trim(), viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `cosines of ${shown(data.word)} at ${count} stages; the table below contains the values` });
  for (const c of low < -0.25 ? [-0.5, 0, 0.5, 1] : [0, 0.5, 1]) {
    if (c < low) continue;
    picture.append(svg("line", { class: "level", x1: left, x2: width - right, y1: y(c), y2: y(c) }),
      svg("text", { class: "tick", x: left - 6, y: y(c) + 4, "text-anchor": "end" }, Number.isInteger(c) ? String(c) : styled_number(c, { digits: 1, scientific: false })));
  }
  for (const [i, stage] of data.stages.entries()) {
    if (count > 16 && i % Math.ceil(count / 12) !== 0) continue;
    picture.append(svg("text", { class: "tick", x: x(i), y: height - (narrow && i % 2 === 0 ? 22 : 6), "text-anchor": "middle" }, shown(stage)));
  }
  if (numbers.floor.some((f) => Number.isFinite(cosine_of(f)))) {
    picture.append(svg("path", { class: "floor", d: `${line(numbers.floor)} L ${x(count - 1).toFixed(1)} ${y(low).toFixed(1)} L ${x(0).toFixed(1)} ${y(low).toFixed(1)} Z` }));
  }
  /** @type {{text: string, at: number, kind: string}[]} */
  const labels = [];
  /** @type {Map<string, string>} */
  const lines = new Map();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  /** @param {any[]} cosines @param {string} kind @param {string} name @param {string} label */
  const draw = (cosines, kind, name, label) => {
    const d = line(cosines);
    const path = svg("path", { class: `line ${kind}`, d });
    picture.append(path);
    if (name !== "") {
      const from = drawn.width === width ? drawn.lines.get(name) : undefined;
      if (from !== undefined && from !== d && !still) path.animate([{ d: `path("${from}")` }, { d: `path("${d}")` }], { duration: 500, easing: "ease-out" });
      lines.set(name, d);
    }
    const last = cosine_of(cosines[count - 1]);
    if (label !== "" && Number.isFinite(last)) labels.push({ text: `${label}  ${styled_number(last, three)}`, at: y(last), kind });
  };
  if (state.without) for (const { i } of shown_pairs) draw(data.pairs[i].cosine, i === state.pair ? "old chosen" : "old", "", "");
  for (const { pair, i } of [...shown_pairs.filter((one) => one.i !== state.pair), ...shown_pairs.filter((one) => one.i === state.pair)]) {
    const chosen = i === state.pair;
    const control = chosen ? control_of(numbers, pair) : null;
    if (control) draw(control.cosine, "control", `control ${i}`, `“${narrow && control.word.length > 6 ? `${shown(control.word).slice(0, 5)}…` : shown(control.word).slice(0, 12)}”`);
    draw(pair.cosine, chosen ? "chosen" : "other", `pair ${i}`, chosen || shown_pairs.length <= most_labels ? pair.sentences.join(", ") : "");
  }
  const floor = cosine_of(numbers.floor[count - 1]);
  if (Number.isFinite(floor)) labels.push({ text: `floor  ${styled_number(floor, three)}`, at: y(floor), kind: "floor-name" });
  // Labels that would overlap are moved apart: downwards, and then up from the bottom.
  const pitch = narrow ? 15 : 17;
  labels.sort((a, b) => a.at - b.at);
  for (let i = 1; i < labels.length; ++i) labels[i].at = Math.max(labels[i].at, labels[i - 1].at + pitch);
  for (let i = labels.length - 1, most = height - bottom; i >= 0; --i, most -= pitch) labels[i].at = Math.min(labels[i].at, most);
  for (const { text, at, kind } of labels) picture.append(svg("text", { class: `label ${kind}`, x: width - right + 8, y: (at + 4).toFixed(1) }, text));
  drawn = { width, lines };
  return picture;
}

/**
 * The numbers of the chart: the pairs with A and the one chosen, a control beneath each.
 * @param {any} data
 * @param {Numbers} numbers
 * @param {State} state
 */
function cosine_table(data, numbers, state) {
  /** @param {any[]} cosines */
  const cells = (cosines) => cosines.map((c) => el("td", {}, el("span", { class: "number" }, cosine_text(c))));
  const body = el("tbody");
  for (const [i, pair] of numbers.pairs.entries()) {
    if (i !== state.pair && pair.sentences[0] !== "A") continue;
    body.append(el("tr", { class: i === state.pair ? "in-focus" : null, "data-pair": i }, el("th", { scope: "row" }, pair.sentences.join(" and ")), ...cells(pair.cosine)));
    const control = control_of(numbers, pair);
    if (control) body.append(el("tr", { class: "quiet", "data-control": i }, el("th", { scope: "row" }, "control “", word(control.word), "”"), ...cells(control.cosine)));
  }
  if (numbers.floor_pairs > 0) body.append(el("tr", { class: "quiet", "data-floor": "" }, el("th", { scope: "row" }, "floor"), ...cells(numbers.floor)));
  return el("table", { class: "cosines", "aria-label": `cosines of ${shown(data.word)} by stage` },
    el("thead", {}, el("tr", {}, el("td"), ...data.stages.map((/** @type {string} */ s) => el("th", { scope: "col" }, shown(s))))), body);
}

/**
 * The controls that choose the pair and hide the words.
 * @param {any} data
 * @param {Numbers} numbers
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 */
function choosers_of(data, numbers, state, set) {
  const line = el("p", { class: "chooser comparison-chooser" });
  if (numbers.pairs.length > most_buttons) {
    const select = el("select", { "aria-label": "the pair", "data-focus": "pair", change: () => set({ pair: Number(select.value) }) },
      ...numbers.pairs.map((pair, i) => el("option", { value: i, selected: i === state.pair }, pair.sentences.join(" and "))));
    line.append(select);
  } else if (numbers.pairs.length > 1) {
    line.append(...numbers.pairs.map((pair, i) => el("button", { "data-focus": `pair ${i}`, "aria-pressed": String(i === state.pair), click: () => set({ pair: i }) }, pair.sentences.join(" and "))));
  }
  if (data.hidden) {
    line.append(el("button", { class: "hide-switch", "data-focus": "hide", "aria-pressed": String(state.without), click: () => set({ without: !state.without }) },
      `${state.without ? "show" : "hide"} ${data.hidden.words.map((/** @type {string} */ w) => `“${shown(w)}”`).join(", ")}`));
  }
  return line;
}

/** The heads of the pair, one line per layer. @param {Pair} pair */
function heads_table(pair) {
  const body = el("tbody");
  for (const [layer, row] of pair.share.entries()) {
    const shares = row.map(cosine_of);
    const order = shares.map((_, h) => h).filter((h) => Number.isFinite(shares[h])).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]) || a - b);
    body.append(el("tr", { "data-layer": layer }, el("th", { scope: "row" }, `L${layer}`),
      el("td", {}, el("span", { class: "number" }, styled_number(cosine_of(pair.difference[layer]), { digits: 2, scientific: false }))),
      el("td", { class: "strip-cell" }, order.length === 0 ? "no difference" : strip(shares, { width: 250, height: 30, kind: "value", label: `the shares of ${shares.length} heads in layer ${layer}` })),
      ...[0, 1].map((n) => el("td", { class: "largest" }, order[n] === undefined ? null : `H${order[n]} ${styled_number(100 * shares[order[n]], { digits: 1, scientific: false })} %`))));
  }
  return el("table", { class: "path parting", "aria-label": "which heads make the two differ" },
    el("thead", {}, el("tr", {}, el("td"), el("th", { scope: "col" }, "norm"), el("th", { scope: "col" }, `share of each of ${pair.share[0]?.length ?? 0} heads`), el("th", { scope: "col", colspan: 2 }, "the largest"))), body);
}

/**
 * The sentences and the chart, as a section of the article.
 * @param {any} data
 * @param {State} state
 * @param {(change: Partial<State>) => void} set
 * @param {boolean} alone the page shows nothing else: the findings are in its title
 */
export function comparison_figure(data, state, set, alone) {
  /** @type {Numbers} */
  const numbers = state.without && data.hidden ? data.hidden : data;
  // Alone, the page has the verdict and the test with hidden words in its head.
  const [verdict, ...rest] = data.findings;
  const others = alone && data.hidden ? rest.slice(1) : rest;
  return el("section", { class: "figure comparison" }, alone ? null : el("h2", {}, "One word, ", String(data.sentences.length), " vectors"),
    el("div", { class: "body" }, el("div", { class: "scroll" }, aligned_sentences(data)), ...vocabulary_notes(data), alone ? null : el("p", { class: "verdict" }, shown(verdict)),
      choosers_of(data, numbers, state, set), chart(data, state, numbers), el("div", { class: "scroll" }, cosine_table(data, numbers, state)),
      ...others.map((/** @type {string} */ text) => el("p", { class: "caption" }, shown(text)))),
    el("aside", { class: "note" }, el("p", {}, "Cosine 1: the same direction. ", numbers.floor_pairs > 0 ? `The gray band ends at the floor, the mean over all ${numbers.floor_pairs} pairs of different words. ` : "",
      numbers.pairs[state.pair].controls.length > 0 ? "Dashed: the control, another word that occurs in both sentences." : ""),
    data.hidden ? el("p", {}, "A hidden word is invisible to every other word, in every layer. Thin lines show the cosines before hiding.") : null));
}

/**
 * Which heads make the chosen pair differ.
 * @param {any} data
 * @param {State} state
 */
export function parting_figure(data, state) {
  /** @type {Numbers} */
  const numbers = state.without && data.hidden ? data.hidden : data;
  const pair = numbers.pairs[state.pair];
  return el("section", { class: "figure" }, el("h2", {}, `Which heads make ${pair.sentences.join(" and ")} differ?`),
    el("div", { class: "body" }, el("div", { class: "scroll" }, heads_table(pair))),
    el("aside", { class: "note" }, el("p", {}, `Norm: the norm of the attention output of the word in ${pair.sentences[0]} minus its attention output in ${pair.sentences[1]}.`),
      el("p", {}, "Share: the projection of a head’s own difference onto this difference; the shares of a layer sum to 100 %. Hollow bars reduce the difference.")));
}
