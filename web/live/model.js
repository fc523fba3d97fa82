// SPDX-License-Identifier: Apache-2.0
//
// The model of a live page. Its worker is started before the page is drawn, and reads the model while the file arrives.
//
//     answers, worker, core, this ─▶ worker        first frame ─▶ every other module
//
// Read next: answers.js, live.js, cmake/embed_page.cmake.
import { open_answers } from "./answers.js";

/** Which model this is. @type {{model: string, weights: string, sha256?: string, errors?: Record<string, string | number>}} */
export const about = JSON.parse(document.getElementById("live")?.textContent ?? '{"model": "", "weights": ""}');

/** What is called when a worker can answer, and when none can be had. @type {{ready: () => void, gone: (reason: string) => void}} */
const listener = { ready: () => undefined, gone: () => undefined };
/** @type {ReturnType<typeof open_answers> | null} */
let answers = null;
let is_ready = false;
let reason_gone = "";

/** Starts the worker, unless it was started. */
function started() {
  // The first text runs as well, because the first run of a module is slow.
  const text = document.querySelector("main .typing")?.textContent || document.title;
  return answers ??= open_answers({ with_model: true, requests: [{ do: "open", name: about.model, sha256: about.sha256 }, { do: "sentence", text, quick: true, arrays: true }],
    ready: () => {
      is_ready = true;
      listener.ready();
    },
    gone: (reason) => {
      reason_gone = reason;
      listener.gone(reason);
    } });
}

/**
 * The answers of the model.
 * @param {() => void} ready called when a worker can answer: after the start and after each replacement
 * @param {(reason: string) => void} gone called when no worker can be had
 */
export function model_answers(ready, gone) {
  Object.assign(listener, { ready, gone });
  const known = answers !== null;
  const opened = started();
  if (known && (is_ready || reason_gone !== "")) setTimeout(() => (is_ready ? ready() : gone(reason_gone)));
  return opened;
}

if (about.model !== "" && !/^#(lessons?|matrices)\b/.test(location.hash)) started();
