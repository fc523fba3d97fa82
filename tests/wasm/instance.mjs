// SPDX-License-Identifier: Apache-2.0
//
// Runs a WebAssembly module in node for the tests, with the loader of live pages: node instance.mjs MODULE CORE_JS.
// Each line of standard input is a command, and each line of standard output its reply:
//
//     {"file": NAME, "path": PATH}                   adds a file
//     {"requests": [{"request": …, "payload": …}]}   {"answers": [{"text": …, "arrays": [base 64]} or {"error": NAME, "message": …}]}
//     … "keep": PATTERN                              only the first group of this regular expression in each text
//     {"restart": true}                              a new instance
//
// Every reply has the size of the memory in bytes. Read next: wasm_module.py, web/live/core.js.
import fs from "node:fs";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const { make_core, request_text } = await import(pathToFileURL(process.argv[3]).href);

// The loader keeps the instance to itself; its memory is measured here.
let memory = null;
const Instance = WebAssembly.Instance;
WebAssembly.Instance = class extends Instance {
  constructor(module, imports) {
    super(module, imports);
    memory = this.exports.memory;
  }
};

const module = new WebAssembly.Module(fs.readFileSync(process.argv[2]));
let core = make_core(module);

function answer({ request, payload = null }, keep) {
  try {
    const text = core.call(request_text(request) + (payload === null ? "" : "\n" + payload));
    return { text: keep ? text.match(keep)[1] : text, arrays: core.arrays().map((bytes) => Buffer.from(bytes).toString("base64")) };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const command = JSON.parse(line);
  const reply = {};
  if (command.restart) core = make_core(module);
  if (command.file) {
    const bytes = fs.readFileSync(command.path);
    const file = core.open_file(command.file, bytes.length);
    file.write_bytes(bytes);
    file.close();
  }
  if (command.requests) reply.answers = command.requests.map((request) => answer(request, command.keep));
  console.log(JSON.stringify({ ...reply, memory: memory.buffer.byteLength }));
}
