// SPDX-License-Identifier: Apache-2.0
//
// The page's side of the worker: it starts it, hands over the model in pieces while the file is read, and keeps at most one request of each kind
// waiting, so that a newer key press replaces an older one. After an error, or when a run takes too long and a newer one
// waits, the worker is replaced by a new one, which reads the model again.
//
// Read next: worker.js, live.js.
import { worker_source } from "./worker.js";
import { after_press } from "../press.js";

/** @typedef {{text: string, page: any, rest: any}} Answer */
/** @typedef {{kind: string, request: any, payload?: string | Uint8Array, raw?: boolean, then: (answer: Answer) => void, failed: (reason: string) => void}} Question */

const too_old = 4000;  // milliseconds
const task = 8;  // milliseconds

/**
 * @param {object} of
 * @param {any[]} of.requests what opens the model, and what then runs it once
 * @param {boolean} of.with_model whether it has the files of the model
 * @param {() => void} of.ready called when a worker can answer: after the start and after each replacement
 * @param {(reason: string) => void} of.gone called when no worker can be had
 */
export function open_answers({ requests, with_model, ready, gone }) {
  /** @type {Worker | null} */
  let worker = null;
  let is_ready = false;
  let number = 0;
  let begun = 0;
  /** @type {Question | null} */
  let asked = null;
  /** @type {Map<string, Question>} */
  const waiting = new Map();

  const next = () => {
    if (!worker || !is_ready || asked) return;
    const first = waiting.values().next().value;
    if (first === undefined) return;
    waiting.delete(first.kind);
    asked = first;
    begun = performance.now();
    worker.postMessage({ kind: "ask", number: ++number, request: first.request, payload: first.payload, raw: first.raw });
  };
  const stop = () => {
    worker?.terminate();
    worker = null;
    is_ready = false;
  };
  /** @param {any} message */
  const take = (message) => {
    if (message.kind === "ready") {
      is_ready = true;
      ready();
    } else if (message.kind === "answer") {
      const answered = asked;
      asked = null;
      answered?.then(message);
    } else if (message.kind === "refused") {
      const refused = asked;
      asked = null;
      refused?.failed(message.reason);
    } else {
      const failed = asked;
      const was_ready = is_ready;
      asked = null;
      stop();
      if (!was_ready) return gone(message.reason);
      failed?.failed(message.reason);
      start();
    }
    next();
  };
  const start = () => {
    try {
      if (typeof WebAssembly === "undefined") throw new Error("this browser has no WebAssembly");
      const address = URL.createObjectURL(new Blob([worker_source()], { type: "text/javascript" }));
      const made = new Worker(address);
      URL.revokeObjectURL(address);
      worker = made;
      made.onmessage = ({ data }) => after_press(() => { if (made === worker) take(data); });
      made.onerror = (event) => { if (made === worker) take({ kind: "failed", reason: event.message || "this browser cannot start a worker from a file" }); };
      hand_over(made, 0);
    } catch (error) {
      stop();
      gone(error instanceof Error ? error.message : String(error));
    }
  };
  /** Hands over the core and the files as the browser reads them. @param {Worker} to @param {number} at */
  const hand_over = (to, at) => {
    if (to !== worker) return;
    const elements = document.querySelectorAll(with_model ? "#core, .model-file, .model-piece" : "#core");
    const is_loading = document.readyState === "loading";
    const whole = elements.length - (is_loading && !elements[elements.length - 1]?.nextElementSibling ? 1 : 0);
    for (const end = performance.now() + task; at < whole && performance.now() < end; ++at) {
      const { id, dataset: { name, size, packed, href }, textContent: text } = /** @type {HTMLElement} */ (elements[at]);
      if (name !== undefined) to.postMessage({ kind: "file", name, size: Number(size) });
      to.postMessage({ kind: id === "core" ? id : "piece", packed: packed !== undefined, ...(href === undefined ? { text } : { address: new URL(href, document.baseURI).href }) });
    }
    if (is_loading || at < whole) setTimeout(hand_over, at < whole ? 0 : 10, to, at);
    else if (at === 0) take({ kind: "failed", reason: "the file is incomplete" });
    else to.postMessage({ kind: "open", requests });
  };
  start();
  return {
    /** Asks, in place of a waiting question of the same kind. @param {Question} question */
    ask: (question) => {
      waiting.set(question.kind, question);
      if (asked && asked.kind === question.kind && performance.now() - begun > too_old) {
        stop();
        asked = null;
        start();
      }
      next();
    },
    /** Withdraws a waiting question. @param {string} kind */
    withdraw: (kind) => waiting.delete(kind),
    /** Whether a question of this kind is waiting or asked. @param {string} kind */
    pending: (kind) => waiting.has(kind) || asked?.kind === kind };
}
