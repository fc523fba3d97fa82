// SPDX-License-Identifier: Apache-2.0
//
// The worker of a live page: it holds the core and the model, and answers one request after another.
//
//     in    {kind: "core", text}   {kind: "file", name, size}   {kind: "piece", text} …   {kind: "close"}
//           {kind: "open", requests}                            {kind: "ask", number, request, payload}
//     out   {kind: "ready"}        {kind: "answer", number, text, page}        {kind: "failed", number, reason}
//           {kind: "refused", number, reason}: the core, which has no files, was replaced by a new one
//
// "core" and "piece" have a text in base 64, or an address of the page's site. Arrays leave as transferred arrays, so that
// the page decodes nothing. Read next: core.js, answers.js.
import { base64_size, bytes_of, fetched, make_core, request_text, unpacked, unpacking, write_base64 } from "./core.js";

/**
 * @typedef {object} Message
 * @property {string} kind
 * @property {string} [text]
 * @property {string} [address]
 * @property {string} [name]
 * @property {number} [size] of a file, unpacked
 * @property {boolean} [packed] the pieces are compressed with gzip
 * @property {number} [number]
 * @property {any} [request]
 * @property {string | Uint8Array} [payload] what follows the request's line
 * @property {boolean} [raw] the answer is not read here
 * @property {any[]} [requests]
 */

/**
 * The page's data with arrays in place of base 64, and the buffers to transfer.
 * @param {any} page
 */
export function with_arrays(page) {
  /** @type {ArrayBuffer[]} */
  const buffers = [];
  if (page.subject !== "sentence") return buffers;
  for (const of of [page, page.focus ?? {}]) {
    for (const [name, text] of Object.entries(of)) {
      if (typeof text !== "string" || name === "schema" || name === "subject") continue;
      const bytes = bytes_of(text);
      of[name] = name === "thumbnails" ? bytes : new Float32Array(bytes.buffer);
      buffers.push(bytes.buffer);
    }
  }
  return buffers;
}

/**
 * Splits an answer of the core: the text of "explanation" as it is, which the page also prints, and "page".
 * @param {string} text
 */
export function split_answer(text) {
  const { page = null, ...rest } = JSON.parse(text);
  const [begin, middle] = ['{"explanation": ', ',\n"page": '];
  const end = text.indexOf(middle);
  const own = text.startsWith(begin) && end > 0 ? text.slice(begin.length, end) : JSON.stringify(rest.explanation ?? null);
  delete rest.explanation;
  return { text: own, page, rest };
}

/**
 * Answers the messages of a page.
 * @param {{onmessage: ((event: MessageEvent<Message>) => void) | null, postMessage: (message: any, transfer?: Transferable[]) => void}} scope
 */
export function serve(scope) {
  /** @type {import("./core.js").Core | null} */
  let core = null;
  /** @type {WebAssembly.Module | null} */
  let module = null;
  /** @type {import("./core.js").CoreFile | null} */
  let file = null;
  /** @type {ReturnType<typeof unpacking> | null} */
  let packed_file = null;
  /** @param {any} request @param {string | Uint8Array} [payload] */
  const call = (request, payload) => {
    if (core === null) throw new Error("the core is not running");
    return core.call(request_text(request), payload);
  };
  /** @param {Message} message */
  const content_of_message = async (message) => (message.address === undefined ? bytes_of(message.text ?? "") : fetched(message.address));
  /** @param {Message} message */
  const take = async (message) => {
    if (message.kind === "core") {
      const packed = await content_of_message(message);
      module = await WebAssembly.compile(await unpacked(packed));
      core = make_core(module);
    } else if (message.kind === "file") {
      file = core?.open_file(message.name ?? "", message.size ?? 0) ?? null;
      packed_file = file && message.packed ? unpacking(file) : null;
    } else if (message.kind === "piece") {
      const bytes = await content_of_message(message);
      if (packed_file) await packed_file.write(bytes);
      else file?.write_bytes(bytes);
    } else if (message.kind === "close") {
      await packed_file?.close();
      file?.close();
    } else if (message.kind === "open") {
      // The example runs as well, because the first run of a module is slow.
      for (const request of message.requests ?? []) call(request);
      scope.postMessage({ kind: "ready" });
    } else if (message.raw) {
      scope.postMessage({ kind: "answer", number: message.number, text: call(message.request, message.payload) });
    } else {
      const { text, page, rest } = split_answer(call(message.request, message.payload));
      const buffers = page ? with_arrays(page) : [];
      scope.postMessage({ kind: "answer", number: message.number, text, page, rest }, buffers);
    }
  };
  let before = Promise.resolve();
  let failed = false;
  scope.onmessage = ({ data }) => {
    before = before.then(() => (failed ? undefined : take(data))).catch((error) => {
      const reason = String(error instanceof Error ? error.message : error);
      failed = data.kind !== "ask" || file !== null || module === null;
      if (!failed && module) core = make_core(module);
      scope.postMessage({ kind: failed ? "failed" : "refused", number: data.number ?? -1, reason });
    });
  };
}

/** The source of the worker: the functions above and those of core.js. */
export function worker_source() {
  return `"use strict";\n${[write_base64, base64_size, bytes_of, fetched, unpacked, unpacking, request_text, make_core, with_arrays, split_answer, serve].map(String).join("\n")}\nserve(self);\n`;
}
