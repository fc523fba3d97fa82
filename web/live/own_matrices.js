// SPDX-License-Identifier: Apache-2.0
//
// Where own matrices come from: a pasted table, files that are opened or dropped, and the words of the tokens. Files are
// read in the page, by the library's code.
//
// Read next: files.js, numbers_view.js.
import { el, shown } from "../elements.js";
import { is_matrix, name_of_file, next_name, read_pasted } from "./files.js";

const most_bytes = 32 << 20;

/** Shown until there are own matrices. */
export const example_matrices = { tokens: ["red", "green", "blue"], Q: [[1, 0], [0, 1], [1, 1]], K: [[2, 0], [0, 1], [1, 1]], V: [[1, 0], [0, 1], [0.5, 0.5]] };

/**
 * @typedef {object} PanelActions
 * @property {(text: string) => void} wrong
 * @property {() => void} right
 * @property {(format: "csv" | "npy", name: string, content: string | Uint8Array, then: (matrix: any) => void) => void} read_file
 * @property {(name: string, matrix: any) => void} add
 * @property {(input: any) => void} replace
 * @property {(tokens: string[]) => void} tokens
 */

/** @param {PanelActions} actions */
export function own_panel({ wrong, right, read_file, add, replace, tokens: set_tokens }) {
  /** @type {string[]} */
  let given = [];
  const status = el("p", { class: "own-status", role: "status" });
  const text = el("textarea", { rows: 3, class: "paste", "data-focus": "paste", "aria-label": "numbers of a matrix", spellcheck: "false", placeholder: "Paste a table: from a spreadsheet, CSV, NumPy or JSON" });
  const name = el("input", { type: "text", class: "matrix-name", list: "matrix-names", "data-focus": "paste name", "aria-label": "name of the matrix", autocomplete: "off", spellcheck: "false", maxlength: 64, size: 8 });
  const files = el("input", { type: "file", multiple: true, accept: ".csv,.tsv,.txt,.npy,.json", "data-focus": "files", "aria-label": "open CSV, NPY or JSON files", class: "spoken", tabindex: -1, change: () => {
    for (const file of files.files ?? []) void open(file);
    files.value = "";
  } });
  const words = el("input", { type: "text", class: "own-words", id: "own-words", "data-focus": "words", autocomplete: "off", spellcheck: "false", placeholder: "0, 1, 2 …", change: () => {
    set_tokens(words.value.trim() === "" ? [] : words.value.split(",").map((word) => word.trim()));
  } });

  /** @param {any} json @param {string} matrix_name */
  const take_json = (json, matrix_name) => {
    if (Array.isArray(json)) {
      if (!is_matrix(json)) return wrong(`${shown(matrix_name)} is not a matrix, that is, a list of rows of numbers, all of equal length.`);
      return add(matrix_name, json);
    }
    if (typeof json !== "object" || json === null) return wrong(`${shown(matrix_name)} contains no matrix.`);
    replace(json);
  };
  const take_text = () => {
    right();
    const matrix_name = name.value.trim() || next_name(given);
    if (text.value.trim() === "") return wrong("There are no numbers yet: paste a table.");
    try {
      const read = read_pasted(text.value);
      /** @param {any} matrix */
      const taken = (matrix) => {
        text.value = "";
        add(matrix_name, matrix);
      };
      if ("json" in read) {
        take_json(read.json, matrix_name);
        text.value = "";
      } else {
        read_file("csv", matrix_name, read.csv, taken);
      }
    } catch (error) {
      wrong(error instanceof Error ? error.message : String(error));
    }
  };
  /** @param {File} file */
  const open = async (file) => {
    right();
    if (file.size > most_bytes) return wrong(`${file.name} has ${file.size} bytes, but this page reads at most ${most_bytes}; regard explain reads larger files.`);
    const bytes = new Uint8Array(await file.arrayBuffer());
    const matrix_name = name_of_file(file.name);
    if (/\.npy$/i.test(file.name) || (bytes[0] === 0x93 && bytes[1] === 0x4e)) return read_file("npy", file.name, bytes, (matrix) => add(matrix_name, matrix));
    const content = new TextDecoder().decode(bytes);
    if (!/\.json$/i.test(file.name) && !/^\s*[[{]/.test(content)) return read_file("csv", file.name, /\.(tsv|txt)$/i.test(file.name) ? csv_of_table(content) : bytes, (matrix) => add(matrix_name, matrix));
    try {
      take_json(JSON.parse(content), matrix_name);
    } catch {
      wrong(`${file.name} is not valid JSON.`);
    }
  };
  text.addEventListener("paste", () => setTimeout(take_text, 0));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) take_text();
  });
  const element = el("div", { class: "own-panel" },
    el("p", { class: "citation" }, "Nothing leaves this computer: all data is read and processed in this page."),
    el("datalist", { id: "matrix-names" }, ...["X", "W_query", "W_key", "W_value", "W_output", "Q", "K", "V"].map((value) => el("option", { value }))),
    text,
    el("p", { class: "own-line" }, el("label", {}, "name ", name), " ", el("button", { class: "action", "data-focus": "add", click: take_text }, "add this matrix"), " ",
      el("button", { class: "action", "data-focus": "open files", click: () => files.click() }, "open files"), files, " ",
      el("label", { for: "own-words" }, "words "), words, " ",
      el("button", { class: "action", "data-focus": "example", click: () => replace(example_matrices) }, "example")),
    status);
  element.addEventListener("keydown", (event) => event.stopPropagation());
  for (const kind of ["dragover", "drop"]) {
    window.addEventListener(kind, (event) => {
      const { dataTransfer } = /** @type {DragEvent} */ (event);
      if (!element.isConnected || !dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      if (kind === "drop") for (const file of dataTransfer.files) void open(file);
    });
  }
  return {
    element,
    /** @param {string} about */
    say: (about) => { status.textContent = shown(about); },
    /** @param {string[]} names @param {string[]} tokens */
    names: (names, tokens) => {
      given = names;
      name.placeholder = next_name(names);
      if (document.activeElement !== words) words.value = tokens.join(", ");
    } };
}

/** @param {string} content */
function csv_of_table(content) {
  const read = read_pasted(content);
  return "csv" in read ? read.csv : content;
}
