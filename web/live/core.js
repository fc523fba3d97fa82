// SPDX-License-Identifier: Apache-2.0
//
// The C++ core in a page: the WebAssembly module of web/core/, its files and its requests. These functions run in a
// worker, whose source is their own text (worker.js), so each uses nothing but globals and the functions of that file.
//
//     base64 ─▶ bytes ─▶ gunzip ─▶ module ─▶ instance      files: base64 ─▶ memory of the instance, piece by piece
//     request (JSON) ─▶ regard_request ─▶ answer (JSON)
//
// After an error the instance is lost: no destructor ran. Read next: worker.js, web/core/core.cpp.

/**
 * @typedef {object} CoreExports
 * @property {WebAssembly.Memory} memory
 * @property {() => void} _initialize
 * @property {(size: number) => number} regard_allocate
 * @property {(address: number) => void} regard_free
 * @property {(name: number, name_size: number, data: number, size: number) => void} regard_add_file
 * @property {(text: number, size: number) => number} regard_request
 */

/** @typedef {{write_bytes: (bytes: Uint8Array) => void, close: () => void}} CoreFile */
/** @typedef {{call: (request: string, payload?: string | Uint8Array) => string, arrays: () => Uint8Array<ArrayBuffer>[], open_file: (name: string, size: number) => CoreFile}} Core */

/** The bytes of a file of the page's site. @param {string} address */
export async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** What is compressed with gzip; a server may have unpacked it. @param {Uint8Array<ArrayBuffer>} bytes */
export async function unpacked(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The text of a request. A lone surrogate, which no JSON text may contain, becomes U+FFFD.
 * @param {any} request
 */
export function request_text(request) {
  const [encoder, decoder] = [new TextEncoder(), new TextDecoder("utf-8", { ignoreBOM: true })];
  return JSON.stringify(request, (_, value) => (typeof value === "string" ? decoder.decode(encoder.encode(value)) : value));
}

/**
 * A new instance of the core.
 * @param {WebAssembly.Module} module
 * @returns {Core}
 */
export function make_core(module) {
  const no_such_function = 52;
  const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];
  /** @type {CoreExports | null} */
  let exported = null;
  const core = () => /** @type {CoreExports} */ (exported);
  /** @param {number} address @param {number} size */
  const bytes_at = (address, size) => new Uint8Array(/** @type {ArrayBuffer} */ (core().memory.buffer), address >>> 0, size >>> 0);
  const view = () => new DataView(core().memory.buffer);
  /** @type {Record<string, (...values: any[]) => number>} */
  const system = {
    environ_sizes_get: (count, size) => {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return 0;
    },
    environ_get: () => 0,
    clock_time_get: (_clock, _precision, time) => {
      view().setBigUint64(time, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    random_get: (address, size) => {
      crypto.getRandomValues(bytes_at(address, size));
      return 0;
    },
    fd_write: (_file, parts, count, written) => {
      let [text, total] = ["", 0];
      for (let i = 0; i < count; ++i) {
        const [address, size] = [view().getUint32(parts + 8 * i, true), view().getUint32(parts + 8 * i + 4, true)];
        text += decoder.decode(bytes_at(address, size));
        total += size;
      }
      console.error(text);
      view().setUint32(written, total, true);
      return 0;
    },
    proc_exit: (code) => {
      throw new Error(`the core exited with code ${code}`);
    } };
  /** @type {WebAssembly.ModuleImports} */
  const functions = {};
  for (const one of WebAssembly.Module.imports(module)) {
    if (one.module === "wasi_snapshot_preview1") functions[one.name] = system[one.name] ?? (() => no_such_function);
  }
  const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: functions,
    regard: { throw_error: (/** @type {number} */ text, /** @type {number} */ size) => {
      throw new Error(decoder.decode(bytes_at(text, size)));
    } } });
  exported = /** @type {any} */ (instance.exports);
  core()._initialize();
  /** @param {number} size */
  const allocate = (size) => {
    const address = core().regard_allocate(size) >>> 0;
    if (address === 0) throw new Error("out of memory");
    return address;
  };
  /** Gives texts and bytes to a function of the core, joined. @template T @param {(string | Uint8Array)[]} parts @param {(address: number, size: number) => T} use */
  const with_text = (parts, use) => {
    const all = parts.map((part) => (typeof part === "string" ? encoder.encode(part) : part));
    const size = all.reduce((sum, bytes) => sum + bytes.length, 0);
    const address = allocate(size);
    let at = address;
    for (const bytes of all) {
      bytes_at(at, bytes.length).set(bytes);
      at += bytes.length;
    }
    const result = use(address, size);
    core().regard_free(address);
    return result;
  };
  /** The latest answer. */
  let result = 0;
  /** A part of it. @param {number} part */
  const bytes_of_part = (part) => bytes_at(view().getUint32(result + 4 + 8 * part, true), view().getUint32(result + 8 + 8 * part, true));
  return {
    call: (request, payload) => {
      result = with_text(payload === undefined ? [request] : [request, "\n", payload], (address, size) => core().regard_request(address, size)) >>> 0;
      return decoder.decode(bytes_of_part(0));
    },
    arrays: () => Array.from({ length: view().getUint32(result, true) - 1 }, (_, i) => bytes_of_part(i + 1).slice()),
    open_file: (name, size) => {
      const address = allocate(size);
      let at = address;
      /** The memory for so many more bytes. @param {number} count */
      const next = (count) => {
        if (at + count > address + size) throw new Error(`${name} is longer than expected`);
        at += count;
        return bytes_at(at - count, count);
      };
      return {
        write_bytes: (bytes) => next(bytes.length).set(bytes),
        close: () => with_text([name], (text, length) => core().regard_add_file(text, length, address, size)) };
    } };
}
