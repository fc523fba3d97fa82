// SPDX-License-Identifier: Apache-2.0
//
// A live page: the page of a sentence whose text has a cursor. Every key press asks the core (answers.js), and the page
// is drawn from its answer as from a file.
//
//     key press ─▶ wanted ─▶ quick answer ─▶ page                 while typing: the words' own tests are left out
//                    │ after a pause ─▶ full answer ─▶ page, and the sentence for screen readers
//                    └ second sentence ─▶ comparison ─▶ page
//
// Read next: sentence_line.js, answers.js, page.js.
import { el, shown } from "../elements.js";
import { address_of, read_address } from "../state.js";
import { weights_of } from "../attention.js";
import { current, hooks, root, set } from "../subject.js";
import { draw, hold, show } from "../page.js";
import { addresses, static_hooks, views_line } from "./views.js";
import { about, model_answers } from "./model.js";
import { change_text, earlier_weights, mark_earlier } from "./changes.js";
import { follow, words_in } from "./words.js";
import { choose_shown, choose_text, follow_edit, hidden_words, most_tested, quoted_argument, row_shown, sentence_request, spans_of, wanted } from "./wanted.js";
import { link_of, read_link } from "./link.js";
import { patch, patch_children } from "./patch.js";
import { after_press } from "../press.js";
import { sentence_line } from "./sentence_line.js";
import { digits_note } from "./digits.js";

/** @typedef {import("../attention.js").Attention} Attention */
/** @typedef {import("./changes.js").Row} Row */
/** @typedef {import("./words.js").Span} Span */

const pause = 700;  // milliseconds without a key press, after which the page speaks
const patience = 120;  // milliseconds until a choice is drawn without the core's answer

/** The view of a sentence. */
export function open_sentence() {
  const first = current();
  const { gram } = first.page;
  let active = false;
  /** What was shown when another view was opened. @type {{data: any, text: string, page: any, comparison: any} | null} */
  let kept = null;
  let ready = false;
  let retried = false;
  /** The row before the latest change. @type {Row | null} */
  let before = null;
  let changing = 0;
  let patient = 0;
  let compared = "";
  let last_drawn = 0;
  /** @type {ReturnType<typeof model_answers>} */
  let answers = { ask: () => undefined, withdraw: () => false, pending: () => false };

  const status = el("p", { class: "live-status" });
  const change = el("p", { class: "live-change" });
  const speaker = el("p", { class: "spoken", "aria-live": "polite", role: "status" });
  const line = sentence_line({ text: first.data.text, edited, set });
  const second = el("input", { type: "text", id: "second", "data-focus": "second", autocomplete: "off", spellcheck: "false", disabled: true, placeholder: "the same word in another sentence", input: () => {
    wanted.second = second.value;
    changed_wish();
    compare();
  }, keydown: (/** @type {KeyboardEvent} */ event) => event.stopPropagation() });
  const second_note = el("p", { class: "second-note caption" });
  const slots = { top: el("div"), above: el("div"), below: el("div") };
  const header = el("header", { class: "sentence-header live" }, slots.top, line.element, change, status,
    el("p", { class: "second-line" }, el("label", { for: "second" }, "compare with a second sentence"), " ", second), second_note, slots.above, slots.below, speaker);

  /** @param {string} text @param {boolean} urgent also shown when there is a change to report */
  const say = (text, urgent = false) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("urgent", urgent);
  };
  const hint = () => say(`Type ${first.sentence?.causal ? "a text" : "your own sentence"}. Click a ${first.sentence?.noun} to choose it; to hide it, press x or “hide” in its row.`);

  /** @type {Partial<import("../subject.js").Hooks>} */
  const own_hooks = {};
  own_hooks.top = () => [views_line("sentence", true)];
  own_hooks.header = (a, above, below) => {
    // The words are measured before the rest of the page changes, and the page is laid out once.
    if (header.isConnected) draw_line();
    patch_children(slots.top, above.slice(0, 1));
    patch_children(slots.above, above.slice(1));
    patch_children(slots.below, below);
    return header;
  };
  // What is below the row has listeners of its own numbers, and is replaced.
  own_hooks.place = (old, part, patches) => patches && old !== undefined && old !== part && /^(views|figure row-section)$/.test(part.className) && patch(old, part);
  own_hooks.drawn = drawn;
  own_hooks.foot = () => (about.model === "" ? null : digits_note(about, current().data.text));
  own_hooks.record = () => changed_wish();
  own_hooks.takes = (chosen) => {
    const is_other_row = "query" in chosen || "head" in chosen;
    const needs_sums = chosen.open && !current().page.focus.value_from;
    if (!is_other_row && !needs_sums) return false;
    choose_shown();
    if (is_other_row) before = null;
    if (!ready) return false;
    ask();
    clearTimeout(patient);
    patient = window.setTimeout(() => after_press(draw), patience);
    return true;
  };

  let line_drawn = false;
  function draw_line() {
    const { data, sentence, state } = current();
    if (!sentence) return;
    line_drawn = header.isConnected;
    const spans = spans_of(data);
    const text = line.text();
    const row = row_shown();
    line.draw({ a: sentence.attention, weights: weights_of(sentence.attention, state.head, state.query), state, earlier: before && row && earlier_weights(before, row).weights,
      spans: text === data.text ? spans : spans.map((span) => (span === null ? null : moved(span, data.text, text))) });
  }

  /** The marks and the controls that a static page lacks. */
  function drawn() {
    const { state } = current();
    // The page is laid out for the first time to measure the words, which takes as long as everything before.
    if (!line_drawn) setTimeout(draw_line);
    const row = row_shown();
    if (row) mark_earlier(state.covered ? null : before, row);
    change.textContent = row && !state.covered ? change_text(before, row, state.query) : "";
    for (const head of document.querySelectorAll(".row-table tbody tr:not(.expand) > th")) add_switch(head);
  }

  /** @param {Span} span @param {string} old @param {string} text */
  function moved(span, old, text) {
    const spans = words_in(text);
    const i = follow(span, old, text, spans, false);
    return i < 0 ? null : spans[i];
  }

  /** A key's row gets a button that hides its word. @param {Element} head */
  function add_switch(head) {
    const cell = head.parentElement?.querySelector("[data-cell]");
    if (!ready || !(cell instanceof HTMLElement)) return;
    const word = Number(cell.dataset.cell?.split(" ")[1]);
    const { sentence } = current();
    const hidden = wanted.hidden.includes(word);
    const label = `${hidden ? "show" : "hide"} ${shown(sentence?.labels[word] ?? "")} (x)`;
    const old = head.querySelector(".hide-key");
    const button = el("button", { class: "hide-key", "data-own": true, tabindex: -1, title: label, "aria-label": label, "data-hide": word, click: () => toggle(word) }, hidden ? "show" : "hide");
    if (!old || !patch(old, button)) head.append(button);
  }

  /** Remembers the row before the first of several changes. */
  function begin_change() {
    hold();
    if (changing === 0) before = row_shown();
    clearTimeout(changing);
    changing = window.setTimeout(rest, pause);
  }

  /** After a pause: the full answer, the sentence for screen readers, the address. */
  function rest() {
    changing = 0;
    if (!active) return;
    if (answers.pending("sentence")) {
      changing = window.setTimeout(rest, pause);
      return;
    }
    const { data } = current();
    if (ready && data.text === wanted.text && data.words.length <= most_tested) ask_core(false);
    speaker.textContent = change.textContent || shown(data.findings.finding);
  }

  let recording = 0;
  function changed_wish() {
    clearTimeout(recording);
    recording = window.setTimeout(() => active && history.replaceState(null, "", address()), 300);
  }
  function address() {
    return link_of(address_of(current().state), { text: wanted.text === first.data.text ? null : wanted.text, second: wanted.second, hidden: wanted.hidden });
  }

  /** @param {string} text */
  function edited(text) {
    if (text === wanted.text) return;
    begin_change();
    follow_edit(text);
    ask();
    changed_wish();
  }

  /** @param {number} word */
  function toggle(word) {
    if (!ready || word < 0) return;
    begin_change();
    wanted.hidden = wanted.hidden.includes(word) ? wanted.hidden.filter((one) => one !== word) : [...wanted.hidden, word];
    ask();
    changed_wish();
  }

  function ask() {
    if (!ready) return;
    const empty = wanted.text.trim() === "";
    root.classList.toggle("stale", empty);
    if (empty) {
      answers.withdraw("sentence");
      change.textContent = "";
      say("The text is empty: type a word.", true);
      return;
    }
    ask_core(true);
  }

  /** @param {boolean} quick */
  function ask_core(quick) {
    const { text } = wanted;
    const request = sentence_request(quick);
    answers.ask({ kind: "sentence", request, failed, then: (answer) => arrived(answer, text, quick) });
  }

  /** @param {import("./answers.js").Answer} answer @param {string} text @param {boolean} quick */
  function arrived(answer, text, quick) {
    if (!active) return;
    // A newer answer comes soon: the picture still moves a few times a second.
    if (answers.pending("sentence") && performance.now() - last_drawn < 100) return;
    last_drawn = performance.now();
    clearTimeout(patient);
    retried = false;
    const data = JSON.parse(answer.text);
    const { state, sentence } = current();
    answer.page.gram ??= gram;
    const { layer, head, word } = answer.page.focus;
    if (text === wanted.text) {
      wanted.query = word;
      wanted.head = layer * (sentence?.heads ?? 1) + head;
      wanted.hidden = hidden_words(data, answer.page);
    }
    const in_text = document.activeElement === document.body || header.contains(document.activeElement);
    show({ data, text: answer.text, page: answer.page, comparison: current().comparison }, { query: word, head: layer * answer.page.heads + head,
      open: quick && state.open.startsWith("row ") && Number(state.open.split(" ")[1]) >= data.words.length ? "" : state.open }, in_text);
    if (text !== wanted.text) return;
    hint();
    compare();
  }

  /** @param {string} reason */
  function failed(reason) {
    ready = false;
    line.close();
    if (retried) {
      say(`This text cannot be shown: ${shown(reason)}`, true);
    } else {
      retried = true;
      [wanted.query, wanted.hidden] = [null, []];
    }
  }

  /** The comparison with the second sentence, if the word chosen occurs in both. */
  function compare() {
    if (!active) return;
    const { data, page, comparison, state } = current();
    const word = data.words[wanted.query ?? -1];
    const text = wanted.second.trim();
    let note = "";
    if (text !== "" && word) {
      const [bare, number] = word.name.split(/#(?=\d+$)/);
      const same = occurrences(bare, text);
      if (word.special || same <= Number(number ?? 0)) note = `“${shown(word.name)}” is not in the second sentence: choose a word that is in both.`;
      else if (same > 1 && number === undefined) note = `“${shown(word.name)}” occurs ${same} times in the second sentence, but must occur exactly once.`;
    }
    second_note.textContent = note;
    if (text === "" || note !== "" || !word || !ready || data.text !== wanted.text) {
      answers.withdraw("compare");
      compared = "";
      if (comparison !== null && (text === "" || note !== "")) show({ data, text: JSON.stringify(data, null, 1), page, comparison: null }, state, false);
      return;
    }
    const hide = wanted.hidden.map((i) => data.words[i]).filter((w) => w && !w.special && w !== word && !w.name.includes("#") && occurrences(w.text, text) <= 1).map((w) => w.name);
    const request = { do: "compare", word: word.name, sentences: [data.text, text], hide, command: `regard compare --model ${about.model} ${[word.name, data.text, text].map(quoted_argument).join(" ")}` };
    const key = JSON.stringify(request);
    if (key === compared) return;
    compared = key;
    answers.ask({ kind: "compare", request, failed: (reason) => {
      ready = false;
      second_note.textContent = `This pair cannot be compared: ${shown(reason)}`;
    }, then: (answer) => {
      if (!active || key !== compared) return;
      const now = current();
      show({ data: now.data, text: JSON.stringify(now.data, null, 1), page: now.page, comparison: answer.rest.comparison }, now.state, header.contains(document.activeElement));
    } });
  }

  document.addEventListener("keydown", (event) => {
    if (!active || event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey || !(event.target instanceof HTMLElement)) return;
    const { word, cell } = event.target.dataset;
    const open = current().state.open;
    const found = Number(word ?? /^row (\d+) /.exec(cell ?? open)?.[1] ?? -1);
    if (found < 0) return;
    toggle(found);
    event.preventDefault();
  });

  /** Takes texts and hidden words from the address. */
  function follow_address() {
    const link = read_link(location.hash);
    const own = read_address(location.hash);
    before = null;
    wanted.text = link.text ?? first.data.text;
    wanted.second = second.value = link.second;
    wanted.hidden = link.text === null && link.hidden.length === 0 && !ready ? hidden_words(first.data, first.page) : link.hidden;
    wanted.query = own.query ?? (link.text === null ? first.page.focus.word : null);
    choose_text(first.data.words[first.page.focus.word].text);
    wanted.head = own.head ?? (link.text === null ? current().state.head : null);
    line.replace(wanted.text);
  }
  window.addEventListener("hashchange", () => {
    if (!active) return;
    follow_address();
    ask();
  });

  function opened() {
    ready = true;
    line.open();
    second.disabled = false;
    hint();
    if (!active) return;
    const { data, page, state } = current();
    const same = data.text === wanted.text && state.query === wanted.query && state.head === wanted.head && String(hidden_words(data, page)) === String(wanted.hidden);
    if (same) drawn();
    else ask();
    compare();
  }
  /** @param {string} reason */
  function gone(reason) {
    ready = false;
    line.close();
    line.replace((kept ?? current()).data.text);
    say(`This page cannot compute (${shown(reason)}). It shows one sentence, and all figures work as on any other page of regard.`, true);
  }
  let begun = false;
  return {
    enter: () => {
      Object.assign(hooks, static_hooks, own_hooks, { navigates: hooks.navigates });
      active = true;
      if (kept) show(kept, read_address(location.hash), false);
      kept = null;
      follow_address();
      if (begun) {
        compared = "";
        return ask();
      }
      begun = true;
      say("Reading the model …");
      answers = model_answers(opened, gone);
      draw(true);
    },
    leave: () => {
      const { data, page, comparison } = current();
      addresses.sentence = address();
      kept = { data, text: JSON.stringify(data, null, 1), page, comparison };
      active = false;
      root.classList.remove("stale");
      for (const timer of [changing, recording, patient]) clearTimeout(timer);
      changing = 0;
      answers.withdraw("sentence");
      answers.withdraw("compare");
    } };
}

/** @param {string} word @param {string} text */
function occurrences(word, text) {
  return words_in(text).filter((one) => one.text.toLowerCase() === word.toLowerCase()).length;
}
