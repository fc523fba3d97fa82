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
import { current, draw, hooks, set, show } from "../page.js";
import { addresses, static_hooks, views_line } from "./views.js";
import { about, model_answers } from "./model.js";
import { change_text, earlier_weights, mark_earlier } from "./changes.js";
import { follow, places_of, words_in } from "./words.js";
import { link_of, read_link } from "./link.js";
import { patch, patch_children } from "./patch.js";
import { sentence_line } from "./sentence_line.js";
import { digits_note } from "./digits.js";

/** @typedef {import("../attention.js").Attention} Attention */
/** @typedef {import("./changes.js").Row} Row */
/** @typedef {import("./words.js").Span} Span */

const pause = 700;  // milliseconds without a key press, after which the page speaks
const most_tested = 26;  // words, of which each is hidden by itself after a pause
const most_certain = 500;  // words; a longer text may be truncated
const patience = 120;  // milliseconds until a choice is drawn without the core's answer

/**
 * What the reader wants to see. Words are indices into the core's words of the text.
 * @type {{text: string, second: string, query: number | null, head: number | null, hidden: number[]}}
 */
const wanted = { text: "", second: "", query: null, head: null, hidden: [] };

/** @param {any} data */
function spans_of(data) {
  return places_of(data.text, data.words);
}

/** @param {any} data @param {any} page @returns {number[]} */
function hidden_words(data, page) {
  return data.words.flatMap((/** @type {any} */ w, /** @type {number} */ i) => (w.tokens.some((/** @type {number} */ t) => page.hidden_tokens.includes(t)) ? [i] : []));
}

/** The row shown, to be compared with later ones. @returns {Row | null} */
function row_shown() {
  const { data, sentence, state } = current();
  if (!sentence) return null;
  return { text: data.text, spans: spans_of(data), labels: data.words.map((/** @type {any} */ w) => w.name),
    hidden: data.words.map((/** @type {any} */ _, /** @type {number} */ i) => sentence.attention.hidden(state.head, state.query, i)),
    weights: weights_of(sentence.attention, state.head, state.query) };
}

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
  /** The last text that was not empty, and its words. @type {{text: string, spans: (Span | null)[]}} */
  let last = { text: "", spans: [] };
  /** The text of the word that was chosen. */
  let wish = "";
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
  const hint = () => say(first.sentence?.causal ? "Type a text. Click a token to choose it; x, or “hide” in its row, hides it."
    : "Type your own sentence. Click a word to choose it; x, or “hide” in its row, hides it.");

  /** @type {Partial<import("../page.js").Hooks>} */
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
  own_hooks.takes = (change_of_state) => {
    if (!("query" in change_of_state || "head" in change_of_state)) return false;
    const { state } = current();
    [wanted.query, wanted.head] = [state.query, state.head];
    wish = current().data.words[state.query]?.text ?? wish;
    before = null;
    if (!ready) return false;
    ask();
    clearTimeout(patient);
    patient = window.setTimeout(draw, patience);
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
    if (!line_drawn) draw_line();
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
    const button = el("button", { type: "button", class: "hide-key", "data-own": true, tabindex: -1, title: label, "aria-label": label, "data-hide": word, click: () => toggle(word) }, hidden ? "show" : "hide");
    if (!old || !patch(old, button)) head.append(button);
  }

  /** Remembers the row before the first of several changes. */
  function begin_change() {
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
    const { data } = current();
    if (wanted.text.trim() !== "") last = { text: wanted.text, spans: wanted.text === data.text ? spans_of(data) : in_core(words_in(wanted.text), data) };
    wanted.text = text;
    const spans = in_core(words_in(text), data);
    if (text.trim() !== "") {
      if (wanted.query !== null) wanted.query = query_after(wanted.query, spans);
      wanted.hidden = wanted.hidden.map((word) => word_after(word, spans, false)).filter((word) => word >= 0);
    }
    ask();
    changed_wish();
  }

  /**
   * Where a word of the last text is in the text wanted now, or -1; special tokens are counted from the nearer end.
   * @param {number} word @param {(Span | null)[]} spans @param {boolean} nearest
   */
  function word_after(word, spans, nearest) {
    const span = last.spans[word] ?? null;
    if (span !== null) return follow(span, last.text, wanted.text, spans, nearest);
    return Math.max(0, word * 2 < last.spans.length ? Math.min(word, spans.length - 1) : spans.length - (last.spans.length - word));
  }

  /** The query stays the same word. If that is deleted, the nearest takes its place until it is back. @param {number} query @param {(Span | null)[]} spans */
  function query_after(query, spans) {
    const own = word_after(query, spans, false);
    if (own >= 0 && (last.spans[query] ?? null) !== null && last.spans[query]?.text === wish) wish = spans[own]?.text ?? wish;
    const back = own < 0 || spans[own]?.text !== wish ? spans.findIndex((one) => one?.text === wish) : -1;
    if (back >= 0) return back;
    return own >= 0 ? own : Math.max(0, word_after(query, spans, true));
  }

  /** Words of a text among those of the core, which adds special tokens at both ends. @param {Span[]} spans @param {any} data @returns {(Span | null)[]} */
  function in_core(spans, data) {
    const leading = data.words.findIndex((/** @type {any} */ w) => !w.special);
    const trailing = [...data.words].reverse().findIndex((/** @type {any} */ w) => !w.special);
    return [...Array(Math.max(leading, 0)).fill(null), ...spans, ...Array(Math.max(trailing, 0)).fill(null)];
  }

  /** @param {number} word */
  function toggle(word) {
    if (!ready || word < 0) return;
    begin_change();
    wanted.hidden = wanted.hidden.includes(word) ? wanted.hidden.filter((one) => one !== word) : [...wanted.hidden, word];
    ask();
    changed_wish();
  }

  /** A word's name for the core; undefined if it cannot be named before the core has seen the text. @param {number} word @returns {string | undefined} */
  function name_of(word) {
    const { data } = current();
    const known = data.text === wanted.text ? data.words[word] : undefined;
    if (known) return known.name.startsWith("@") ? `@${known.tokens[0]}` : known.name;
    const spans = in_core(words_in(wanted.text), data);
    const text = spans[word]?.text;
    if (text === undefined) return word === 0 ? "@0" : data.words.at(-1).special ? data.words.at(-1).name : undefined;
    const same = [...spans.keys()].filter((i) => spans[i]?.text === text);
    return text.startsWith("@") || spans.length > most_certain ? undefined : same.length > 1 ? `${text}#${same.indexOf(word)}` : text;
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
    const { sentence } = current();
    const heads = sentence?.heads ?? 1;
    const { text, query, head } = wanted;
    const hide = wanted.hidden.map(name_of).filter((name) => name !== undefined);
    /** @type {any} */
    const request = { do: "sentence", text, hide, ...(quick ? { quick } : {}) };
    const name = query === null ? undefined : name_of(query);
    if (name !== undefined) request.query = name;
    if (head !== null) [request.layer, request.head] = [Math.floor(head / heads), head % heads];
    request.command = ["regard explain --model", about.model, quoted_argument(text), ...(name === undefined ? [] : ["--query", quoted_argument(name)]),
      ...(head === null ? [] : ["--layer", request.layer, "--head", request.head]), ...hide.flatMap((name) => ["--hide", quoted_argument(name)])].join(" ");
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
      if (word.special || same <= Number(number ?? 0)) note = `“${shown(word.name)}” is not in the second sentence: choose a word of both.`;
      else if (same > 1 && number === undefined) note = `“${shown(word.name)}” occurs ${same} times in the second sentence, and must occur once.`;
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
    if (JSON.stringify(request) === compared) return;
    compared = JSON.stringify(request);
    answers.ask({ kind: "compare", request, failed: (reason) => {
      ready = false;
      second_note.textContent = `This pair cannot be compared: ${shown(reason)}`;
    }, then: (answer) => {
      if (!active || JSON.stringify(request) !== compared) return;
      const now = current();
      show({ data: now.data, text: JSON.stringify(now.data, null, 1), page: now.page, comparison: answer.rest.comparison }, now.state, header.contains(document.activeElement));
    } });
  }

  document.addEventListener("keydown", (event) => {
    if (!active || event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey || !(event.target instanceof HTMLElement)) return;
    const { word, cell } = event.target.dataset;
    const open = current().state.open;
    const of_row = /^row (\d+) /.exec(cell ?? (word === undefined ? open : ""));
    const found = word !== undefined ? Number(word) : of_row ? Number(of_row[1]) : -1;
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
    wish = first.data.words[first.page.focus.word].text;
    wanted.head = own.head ?? (link.text === null ? current().state.head : null);
    line.replace(wanted.text);
  }
  window.addEventListener("hashchange", () => {
    if (!active) return;
    follow_address();
    ask();
  });

  const root = document.documentElement;
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
    say(`This page cannot compute (${shown(reason)}). It shows one sentence, and every figure works as in any page of regard.`, true);
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

/** One argument of a command line. @param {string} text */
function quoted_argument(text) {
  return /^[\w@#.,:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
