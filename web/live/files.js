// SPDX-License-Identifier: Apache-2.0
//
// Matrices from outside and back: a pasted table becomes CSV or JSON for the core to read, a matrix becomes CSV, and a file
// is saved through a link to an object of the page, so nothing leaves the computer.
//
// Read next: own_matrices.js.
import { el } from "../elements.js";
import { shape_of } from "./inputs.js";

/**
 * What pasted text is: JSON, or a table with bars, tabs, commas, semicolons or spaces between the numbers, as CSV.
 * @param {string} pasted
 * @returns {{json: any} | {csv: string}}
 */
export function read_pasted(pasted) {
  const text = pasted.replace(/^\ufeff/, "").trim();
  if (/^[[{]/.test(text)) {
    try {
      return { json: JSON.parse(text) };
    } catch {
      // A matrix as NumPy prints it has brackets and no commas.
      if (text.startsWith("{")) throw new Error("The text is not valid JSON.");
    }
  }
  const lines = text.replace(/array\(|\)|tensor\(/g, "").replace(/\]\s*,?\s*\[/g, "\n").replace(/[[\]]/g, "").split(/\r\n|\r|\n/).map((line) => line.trim().replace(/^\||[,|]$/g, "")).filter((line) => line !== "");
  // The heading of a Markdown table ends with a line of dashes.
  lines.splice(0, lines.findIndex((line) => /^[\s:|-]*--[\s:|-]*$/.test(line)) + 1);
  const between = [/\|/, /\t/, /;/, /,/].find((one) => lines.some((line) => one.test(line))) ?? /\s+/;
  return { csv: lines.map((line) => line.split(between).map((cell) => `"${cell.trim().replaceAll("−", "-").replaceAll('"', "")}"`).join(",")).join("\n") };
}

/** One head of a matrix as CSV. @param {any} matrix @param {number} head */
export function csv_of(matrix, head) {
  const { has_heads } = shape_of(matrix);
  const rows = has_heads ? matrix[head] : Array.isArray(matrix[0]) ? matrix : [matrix];
  return rows.map((/** @type {any[]} */ row) => row.map((x) => (typeof x === "number" ? String(x) : x)).join(",") + "\n").join("");
}

/** A matrix as JSON: a line for each row. @param {any} matrix */
export function json_of(matrix) {
  return `${JSON.stringify(matrix).replaceAll("],[", "],\n [")}\n`;
}

/** @param {string} name @param {BlobPart} content @param {string} type */
export function save_file(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  // The browser reads the object after this task.
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** A name that every file system takes. @param {string} name */
export function file_name(name) {
  return name.replace(/[^\p{L}\p{N}_-]+/gu, "-").replace(/^-+|-+$/g, "") || "matrix";
}

const standard_names = ["X", "W_query", "W_key", "W_value", "W_output", "b_query", "b_key", "b_value", "b_output", "Q", "K", "V"];

/** The matrix that a file's name means: one of the standard names, else the name without its end. @param {string} file */
export function name_of_file(file) {
  const bare = file.replace(/^.*[\\/]/, "").replace(/\.[^.]*$/, "");
  const short = /** @type {Record<string, string>} */ ({ query: "Q", key: "K", value: "V", wq: "W_query", wk: "W_key", wv: "W_value", wo: "W_output" })[bare.toLowerCase()];
  return standard_names.find((name) => name.toLowerCase() === bare.toLowerCase()) ?? short ?? (bare.slice(0, 64) || "Q");
}

/** The name that the next matrix gets: what the standard steps still need. @param {string[]} given */
export function next_name(given) {
  const order = given.some((name) => name === "X" || name.startsWith("W_")) ? ["X", "W_query", "W_key", "W_value", "W_output"] : ["Q", "K", "V"];
  return order.find((name) => !given.includes(name)) ?? standard_names.find((name) => !given.includes(name)) ?? `M${given.length}`;
}

/** Whether every element is a number or a word for one, in rows of equal length. @param {any} matrix */
export function is_matrix(matrix) {
  if (!Array.isArray(matrix) || matrix.length === 0) return false;
  const rows = Array.isArray(matrix[0]) ? (Array.isArray(matrix[0][0]) ? matrix.flat(1) : matrix) : [matrix];
  return rows.every((/** @type {any} */ row) => Array.isArray(row) && row.length === rows[0].length && row.length > 0 &&
    row.every((x) => typeof x === "number" || ["inf", "-inf", "nan"].includes(x)));
}
