// SPDX-License-Identifier: Apache-2.0
//
// One word in several sentences: the sentences with the word aligned, its cosines from layer to layer over the floor of
// all other words, a common word beside as control, and which heads part the two. A switch hides words: the lines
// move, the old ones stay as ghosts. All of it is in the JSON of regard compare (docs/compare.md).
// Read next: page.js.
import { fixed_number, styled_number } from "./numbers.js";
import { el, shown, svg, word } from "./elements.js";
import { strip } from "./work_figure.js";

/** @typedef {{pair: number, hide: boolean}} Choice */
/** @typedef {{sentences: [string, string], cosine: number[], above_floor: number[], controls: {word: string, cosine: number[]}[], difference: number[], share: any[][]}} Pair */

const three = { digits: 3, scientific: false };

/** @param {unknown} x */
function finite(x) {
  return typeof x === "number" ? x : NaN;
}

/**
 * What the numbers say, and no more: the word, its control, the floor.
 * @param {any} data
 * @param {Pair} pair
 * @param {{floor: number[]}} numbers
 */
function lead(data, pair, numbers) {
  const last = data.stages.length - 1;
  const [a, b] = pair.sentences;
  const control = pair.controls[0];
  return `After ${stage_name(data.stages[last])} the cosine of "${shown(data.word)}" in ${a} and in ${b} is ${styled_number(pair.cosine[last], three)}; ` +
    (control ? `of "${shown(control.word)}", which stands in both, ${styled_number(finite(control.cosine[last]), three)}; ` : "") +
    `of two different words ${styled_number(finite(numbers.floor[last]), three)} on average.`;
}

/** @param {string} stage */
function stage_name(stage) {
  return /^L\d+$/.test(stage) ? `layer ${stage.slice(1)}` : stage;
}

/** @param {any} data */
function aligned_sentences(data) {
  const body = el("tbody");
  for (const sentence of data.sentences) {
    const own = sentence.words.map((/** @type {any} */ w) => w.text).filter((/** @type {string} */ _, /** @type {number} */ i) => !sentence.words[i].special);
    const at = sentence.word - sentence.words.slice(0, sentence.word).filter((/** @type {any} */ w) => w.special).length;
    body.append(el("tr", {}, el("th", { scope: "row" }, sentence.name), el("td", { class: "before" }, el("bdi", {}, shown(own.slice(0, at).join(" ")))),
      el("td", { class: "middle" }, word(own[at], "query")), el("td", { class: "after" }, el("bdi", {}, shown(own.slice(at + 1).join(" "))))));
  }
  return el("table", { class: "aligned", "aria-label": "the sentences, the word aligned" }, body);
}

/**
 * @param {any} data
 * @param {Choice} choice
 * @param {{floor: number[], pairs: Pair[]}} numbers
 */
function chart(data, choice, numbers) {
  const [width, height, left, right, top, bottom] = [720, 330, 34, 118, 12, 30];
  const count = data.stages.length;
  const pairs = numbers.pairs.map((pair, i) => ({ pair, i })).filter(({ i }) => i === choice.pair || numbers.pairs[i].sentences[0] === "A");
  const all = [...numbers.floor, ...pairs.flatMap(({ pair }) => [...pair.cosine, ...pair.controls.flatMap((c) => c.cosine)])].map(finite).filter(Number.isFinite);
  const low = Math.min(0, ...all);
  const x = (/** @type {number} */ stage) => left + (stage * (width - left - right)) / Math.max(1, count - 1);
  const y = (/** @type {number} */ cosine) => top + ((1 - cosine) / (1 - low)) * (height - top - bottom);
  const line = (/** @type {number[]} */ cosines) => cosines.map(finite).map((c, i) => (Number.isFinite(c) ? `${i === 0 ? "M" : "L"} ${x(i).toFixed(1)} ${y(c).toFixed(1)}` : "")).join(" ");
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `cosines of ${shown(data.word)} at ${count} stages; the table beneath has the numbers` });
  for (const c of [0, 0.5, 1]) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(c), y2: y(c) }), svg("text", { class: "tick", x: left - 6, y: y(c) + 4, "text-anchor": "end" }, styled_number(c, { digits: c === 0.5 ? 1 : 0, scientific: false })));
  }
  data.stages.forEach((/** @type {string} */ stage, /** @type {number} */ i) => picture.append(svg("text", { class: "tick", x: x(i), y: height - 8, "text-anchor": "middle" }, shown(stage))));
  picture.append(svg("path", { class: "floor", d: `${line(numbers.floor)} L ${x(count - 1).toFixed(1)} ${y(low).toFixed(1)} L ${x(0).toFixed(1)} ${y(low).toFixed(1)} Z` }));
  /** @type {{text: string, at: number, kind: string}[]} */
  const labels = [];
  const draw = (/** @type {number[]} */ cosines, /** @type {string} */ kind, /** @type {string} */ text) => {
    picture.append(svg("path", { class: `line ${kind}`, d: line(cosines) }));
    const last = finite(cosines[count - 1]);
    if (text !== "" && Number.isFinite(last)) labels.push({ text, at: y(last), kind });
  };
  if (choice.hide) for (const { i } of pairs) draw(data.pairs[i].cosine, "old", "");
  for (const { pair, i } of pairs) {
    const kind = i === choice.pair ? "chosen" : "other";
    draw(pair.cosine, kind, `${pair.sentences.join(", ")}  ${styled_number(pair.cosine[count - 1], three)}`);
    if (i === choice.pair && pair.controls[0]) draw(pair.controls[0].cosine, "control", `“${shown(pair.controls[0].word)}”  ${styled_number(finite(pair.controls[0].cosine[count - 1]), three)}`);
  }
  const floor = finite(numbers.floor[count - 1]);
  if (Number.isFinite(floor)) labels.push({ text: `floor  ${styled_number(floor, three)}`, at: y(floor), kind: "floor-name" });
  labels.sort((a, b) => a.at - b.at);
  labels.forEach((label, i) => { if (i > 0) label.at = Math.max(label.at, labels[i - 1].at + 17); });
  for (const { text, at, kind } of labels) picture.append(svg("text", { class: `label ${kind}`, x: width - right + 8, y: (at + 4).toFixed(1) }, text));
  return picture;
}

/** @param {any} data @param {{floor: number[], pairs: Pair[]}} numbers @param {Choice} choice */
function cosine_table(data, numbers, choice) {
  const cells = (/** @type {number[]} */ cosines) => cosines.map((c) => el("td", {}, el("span", { class: "number" }, styled_number(finite(c), three))));
  const body = el("tbody");
  for (const [i, pair] of numbers.pairs.entries()) {
    body.append(el("tr", { class: i === choice.pair ? "in-focus" : null, "data-pair": i }, el("th", { scope: "row" }, pair.sentences.join(" and ")), ...cells(pair.cosine)));
    for (const control of pair.controls) body.append(el("tr", { class: "control-row" }, el("th", { scope: "row" }, word(control.word), ` ${pair.sentences.join(",")}`), ...cells(control.cosine)));
  }
  body.append(el("tr", { class: "floor-row" }, el("th", { scope: "row" }, "floor"), ...cells(numbers.floor)));
  return el("table", { class: "matrix cosines", "aria-label": "cosines by stage" }, el("thead", {}, el("tr", {}, el("td"), ...data.stages.map((/** @type {string} */ s) => el("th", { scope: "col" }, shown(s))))), body);
}

/** @param {Pair} pair */
function heads_table(pair) {
  const percent = (/** @type {number} */ x) => `${fixed_number(100 * x, 1)} %`;
  const body = el("tbody");
  for (const [layer, row] of pair.share.entries()) {
    const shares = row.map(finite);
    const order = shares.map((_, h) => h).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]));
    body.append(el("tr", {}, el("th", { scope: "row" }, `L${layer}`), el("td", {}, el("span", { class: "number" }, styled_number(finite(pair.difference[layer]), { digits: 2, scientific: false }))),
      el("td", { class: "strip-cell" }, strip(shares, { width: 260, height: 30, kind: "neutral", label: `shares of ${shares.length} heads in layer ${layer}` })),
      el("td", { class: "largest" }, order.slice(0, 2).filter((h) => Number.isFinite(shares[h])).map((h) => `H${h} ${percent(shares[h])}`).join(", "))));
  }
  return el("table", { class: "path parting", "aria-label": "which heads part the two" }, el("thead", {}, el("tr", {}, el("td"), el("th", { scope: "col" }, "length"), el("th", { scope: "col" }, "share of each head"), el("th", { scope: "col" }, "the largest"))), body);
}

/**
 * Everything of the comparison, as sections of the article.
 * @param {any} data
 * @param {Choice} choice
 * @param {(change: Partial<Choice>) => void} set
 */
export function comparison_sections(data, choice, set) {
  const numbers = choice.hide && data.hidden ? data.hidden : data;
  const pair = numbers.pairs[choice.pair];
  const switches = el("p", { class: "chooser" }, el("span", {}, "pair"), ...numbers.pairs.map((/** @type {Pair} */ one, /** @type {number} */ i) =>
    el("button", { type: "button", "data-focus": `pair ${i}`, "aria-pressed": String(i === choice.pair), click: () => set({ pair: i }) }, one.sentences.join(" and "))));
  if (data.hidden) {
    switches.append(el("button", { type: "button", class: "hide-switch", "data-focus": "hide", "aria-pressed": String(choice.hide), click: () => set({ hide: !choice.hide }) },
      `${choice.hide ? "show" : "hide"} ${data.hidden.words.map((/** @type {string} */ w) => `“${shown(w)}”`).join(", ")}`));
  }
  return [el("header", {}, el("h1", {}, `“${shown(data.word)}” in ${data.sentences.length} sentences`), el("p", { class: "lead" }, lead(data, pair, numbers))),
    el("section", { class: "figure" }, el("div", { class: "body" }, el("div", { class: "scroll" }, aligned_sentences(data)), switches, chart(data, choice, numbers),
      el("div", { class: "scroll" }, cosine_table(data, numbers, choice))),
    el("aside", { class: "note" }, el("p", {}, "Cosine 1: the same direction. The grey band reaches to the floor, the mean over all ", String(numbers.floor_pairs), " pairs of different words; dashed: the control, a word that both sentences hold."),
      data.hidden ? el("p", {}, "Hiding a word makes it invisible to every word in every layer; the thin lines are those before.") : null)),
    el("section", { class: "figure" }, el("h2", {}, `Which heads part ${pair.sentences.join(" and ")}`), el("div", { class: "body" }, el("div", { class: "scroll" }, heads_table(pair))),
      el("aside", { class: "note" }, el("p", {}, "Length: of what attention adds to the word in the one sentence less what it adds in the other. Share: how far each head's own difference reaches along that; hollow bars pull the two together."))) ];
}
