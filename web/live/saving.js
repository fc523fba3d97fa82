// SPDX-License-Identifier: Apache-2.0
//
// The buttons that save a matrix, the result of a step, or the whole input (given.js).
//
// Read next: files.js, numbers_view.js.
import { current } from "../subject.js";
import { csv_of, file_name, json_of, save_file } from "./files.js";
import { matrix_names, shape_of } from "./inputs.js";
import { input_of, told } from "./numbers.js";

/**
 * @param {object} of
 * @param {() => import("./numbers.js").Numbers | null} of.shown
 * @param {(question: import("./answers.js").Question) => void} of.ask
 * @param {(text: string) => void} of.wrong
 */
export function listen_to_saving({ shown, ask, wrong }) {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-save]") : null;
    const now = shown();
    if (!button || !now) return;
    const [format, kind, ...rest] = (button.getAttribute("data-save") ?? "").split(" ");
    const name = rest.join(" ");
    const input = now.drawn && now.lesson !== "" ? now.drawn : input_of(now);
    const of = now.lesson === "" ? "matrices" : now.lesson;
    const { data } = current();
    if (kind === "input" && format === "json") save_file(`${of}.json`, `${JSON.stringify(input, null, 1)}\n`, "application/json");
    else if (kind === "input") for (const one of matrix_names(input)) save_matrix(file_name(one), input[one], format);
    else if (kind === "matrix") save_matrix(file_name(name), input[name], format);
    else if (data.steps?.[Number(name)]) save_matrix(file_name(`${of}-${data.steps[Number(name)].name}`), data.steps[Number(name)].result, format);
  });
  /** @param {string} name @param {any} matrix @param {string} format */
  function save_matrix(name, matrix, format) {
    const { heads, has_heads } = shape_of(matrix);
    if (format === "json") return save_file(`${name}.json`, json_of(matrix), "application/json");
    if (format === "csv") {
      for (let head = 0; head < heads; ++head) save_file(`${name}${has_heads ? `-head${head}` : ""}.csv`, csv_of(matrix, head), "text/csv");
      return;
    }
    ask({ kind: `save ${name}`, request: { do: "write_npy" }, payload: JSON.stringify({ M: matrix }), then: (answer) => {
      const bytes = Uint8Array.from(answer.rest.file.match(/../g) ?? [], (/** @type {string} */ digits) => parseInt(digits, 16));
      save_file(`${name}.npy`, bytes, "application/octet-stream");
    }, failed: (reason) => wrong(told(reason)) });
  }
}
