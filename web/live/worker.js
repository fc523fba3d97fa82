// SPDX-License-Identifier: Apache-2.0
//
// The worker of a live page: it holds the core and the model, and answers one request after another.
//
//     in    {kind: "core", text}   {kind: "file", name, size}   {kind: "piece", text} …
//           {kind: "open", requests}                            {kind: "ask", number, request, payload}
//     out   {kind: "ready"}        {kind: "answer", number, text, page}        {kind: "failed", number, reason}
//           {kind: "refused", number, reason}: the core, which has no files, was replaced by a new one
//
// "core" and "piece" have a text in base64, or an address of the page's site. Arrays leave as transferred arrays. The
// tokenizer is read while the tensors arrive. Read next: core.js, answers.js.
import { bytes_of } from "../bytes.js";
import { fetched, make_core, request_text, unpacked } from "./core.js";

/**
 * @typedef {object} Message
 * @property {string} kind
 * @property {string} [text]
 * @property {string} [address]
 * @property {string} [name]
 * @property {number} [size] of a file, unpacked
 * @property {boolean} [packed] the piece is compressed with gzip
 * @property {number} [number]
 * @property {any} [request]
 * @property {string | Uint8Array} [payload] what follows the request's line
 * @property {boolean} [raw] the answer is not read here
 * @property {any[]} [requests]
 */

/**
 * Puts the arrays in place of their numbers: "@0".
 * @param {any} page
 * @param {Uint8Array<ArrayBuffer>[]} arrays
 */
export function put_arrays(page, arrays) {
  for (const of of [page, page?.focus ?? {}]) {
    for (const [name, text] of Object.entries(of ?? {})) {
      const bytes = typeof text === "string" && text.startsWith("@") ? arrays[Number(text.slice(1))] : undefined;
      if (bytes) of[name] = name === "thumbnails" ? bytes : new Float32Array(bytes.buffer);
    }
  }
}

/**
 * Splits an answer of the core: the text of "explanation" as it is, which the page also prints, and "page".
 * @param {string} text
 */
export function split_answer(text) {
  const { page = null, ...rest } = JSON.parse(text);
  const [begin, middle] = ['{\n"explanation": ', ',\n"page": '];
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
  let [name, has_files] = ["", false];
  /** @param {any} request @param {string | Uint8Array} [payload] */
  const call = (request, payload) => {
    if (core === null) throw new Error("the core is not running");
    return core.call(request_text(request), payload);
  };
  /** The latest file has all its pieces. */
  const close = () => {
    file?.close();
    file = null;
    if (name === "tokenizer.json") call({ do: "tokenizer" });
    name = "";
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
      close();
      [name, has_files] = [message.name ?? "", true];
      file = core?.open_file(name, message.size ?? 0) ?? null;
    } else if (message.kind === "piece") {
      const bytes = await content_of_message(message);
      file?.write_bytes(message.packed ? await unpacked(bytes) : bytes);
    } else if (message.kind === "open") {
      close();
      const [open, ...others] = message.requests ?? [];
      if (open) call(open);
      scope.postMessage({ kind: "ready" });
      for (const request of others) call(request);
    } else if (message.raw) {
      scope.postMessage({ kind: "answer", number: message.number, text: call(message.request, message.payload) });
    } else {
      const { text, page, rest } = split_answer(call({ ...message.request, arrays: true }, message.payload));
      const arrays = core?.arrays() ?? [];
      put_arrays(page, arrays);
      scope.postMessage({ kind: "answer", number: message.number, text, page, rest }, arrays.map((bytes) => bytes.buffer));
    }
  };
  let before = Promise.resolve();
  let failed = false;
  scope.onmessage = ({ data }) => {
    before = before.then(() => (failed ? undefined : take(data))).catch((error) => {
      const reason = String(error instanceof Error ? error.message : error);
      failed = data.kind !== "ask" || has_files || module === null;
      if (!failed && module) core = make_core(module);
      scope.postMessage({ kind: failed ? "failed" : "refused", number: data.number ?? -1, reason });
    });
  };
}

/** The source of the worker: the functions above and those of core.js. */
export function worker_source() {
  return `"use strict";\n${[bytes_of, fetched, unpacked, request_text, make_core, put_arrays, split_answer, serve].map(String).join("\n")}\nserve(self);\n`;
}
