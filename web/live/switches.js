// SPDX-License-Identifier: Apache-2.0
//
// The settings of a computation as one line of text controls, and as the options of the program that set them. A switch
// changes the computation itself: `regard explain` has the same options.
//
// Read next: document.js, docs/guide/own-matrices.md.
import { el } from "../elements.js";

/** @typedef {Record<string, string>} Switches by the key of the input; a missing one is as in the document */

/**
 * @typedef {object} Switch
 * @property {string} key of the input
 * @property {string} label
 * @property {string} default_value the value without the key
 * @property {[value: string, text: string][]} choices
 * @property {string} number the label of a number in place of a choice, or ""
 * @property {string} option of the program
 */

/** @type {Switch[]} */
export const switches = [
  { key: "scale", label: "scale", default_value: "sqrt", choices: [["sqrt", "÷ √D"], ["none", "none"], ["floor_half", "⌊x / 2⌋"]], number: "× a number", option: "--scale" },
  { key: "causal", label: "mask", default_value: "off", choices: [["off", "none"], ["top_left", "causal"], ["bottom_right", "causal, bottom right"]], number: "causal + offset", option: "--causal" },
  { key: "softmax", label: "softmax", default_value: "shifted", choices: [["shifted", "e^(x − m)"], ["unshifted", "not shifted"], ["ratio", "x / sum"]], number: "", option: "--softmax" },
  { key: "softmax_base", label: "base", default_value: "e", choices: [["e", "e"], ["2", "2"], ["3", "3"], ["10", "10"]], number: "a number", option: "--softmax-base" },
  { key: "heads", label: "heads", default_value: "1", choices: [["1", "1"], ["2", "2"], ["3", "3"], ["4", "4"]], number: "a number", option: "--heads" },
  { key: "layout", label: "a token is", default_value: "rows", choices: [["rows", "a row"], ["columns", "a column"]], number: "", option: "--layout" },
  { key: "dtype", label: "type", default_value: "f64", choices: [["f64", "float64"], ["f32", "float32"]], number: "", option: "--dtype" }];

const reads_scale = ["scaled", "masked", "weights", "context", "training", "trained", "softmax_gradient"];
const reads_mask = ["mask", "masked", "weights", "context", "hide", "training", "trained"];

/** The switches that some step of an input reads. @param {any} input */
export function switches_of(input) {
  const steps = input.steps;
  if (!steps) return switches;
  /** @param {string[]} operations @param {string} own */
  const reads = (operations, own) => steps.some((/** @type {any} */ step) => operations.includes(step.operation) && step[own] === undefined);
  return switches.filter(({ key }) => key === "scale" ? reads(reads_scale, "scale") : key === "causal" ? reads(reads_mask, "causal")
    : key === "softmax" ? reads(["weights", "context"], "softmax") : key === "softmax_base" ? reads(["weights", "context", "power"], "base") : key !== "heads");
}

/** The value of a setting of an input as text. @param {any} input @param {Switch} of */
export function setting_of(input, { key, default_value }) {
  const value = input[key];
  if (value === undefined) return default_value;
  return key === "causal" && typeof value === "boolean" ? (value ? "top_left" : "off") : String(value);
}

/** Sets a setting of an input. @param {any} input @param {string} key @param {string} value */
export function set_setting(input, key, value) {
  const number = Number(value);
  input[key] = value !== "" && Number.isFinite(number) ? number : key === "causal" && value === "off" ? false : value;
}

/** What is wrong with a typed value, or "". @param {Switch} of @param {string} value */
export function wrong_setting({ key, label }, value) {
  const text = value.trim().replaceAll("−", "-");
  const number = Number(text);
  if (text === "") return `The ${label} is empty: type a number.`;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return `The ${label} “${value.trim()}” is not a number.`;
  if (!Number.isFinite(number)) return `The ${label} ${value.trim()} is out of range for double: at most 1.8e308.`;
  if (key === "scale" && number === 0) return "A scale of 0 makes every score 0: type another number.";
  if (key === "softmax_base" && number <= 0) return "The base must be above 0.";
  if (key === "causal" && !Number.isInteger(number)) return "The offset of the mask must be an integer.";
  if (key === "heads" && (!Number.isInteger(number) || number < 1 || number > 65536)) return "The number of heads must be an integer from 1 to 65536.";
  return "";
}

/** The options of the program for some switches. @param {Switches} chosen @param {string[]} without */
export function options_of(chosen, without = []) {
  return switches.filter(({ key }) => key in chosen && !without.includes(key)).map(({ key, option }) => `${option}${key === "causal" || chosen[key].startsWith("-") ? "=" : " "}${chosen[key]}`);
}

/** Marks the settings that differ from the document. @param {HTMLElement} line @param {Switches} chosen */
export function mark_settings(line, chosen) {
  for (const label of line.querySelectorAll("label")) label.classList.toggle("edited", (label.dataset.setting ?? "") in chosen);
}

/**
 * The line of controls.
 * @param {any} document the input without switches
 * @param {Switches} chosen
 * @param {{choose: (key: string, value: string) => void, wrong: (text: string) => void, right: () => void}} listener
 */
export function switches_line(document, chosen, { choose, wrong, right }) {
  const line = el("p", { class: "settings", role: "group", "aria-label": "settings" });
  for (const one of switches_of(document)) {
    const document_value = setting_of(document, one);
    const value = chosen[one.key] ?? document_value;
    const known = one.choices.some(([choice]) => choice === value);
    const number = el("input", { type: "text", inputmode: "decimal", class: "setting-number", autocomplete: "off", "data-focus": `number of ${one.key}`, "aria-label": `${one.label}: a number`, value: known ? "" : value, hidden: known });
    const select = el("select", { "data-focus": `setting ${one.key}`, "aria-label": one.label },
      ...one.choices.map(([choice, text]) => el("option", { value: choice, selected: choice === value }, text)),
      one.number === "" ? null : el("option", { value: "number", selected: !known }, one.number));
    select.addEventListener("change", () => {
      right();
      number.hidden = select.value !== "number";
      if (number.hidden) choose(one.key, select.value);
      else number.focus();
    });
    number.addEventListener("input", () => {
      const text = number.value.trim().replaceAll("−", "-");
      const reason = wrong_setting(one, text);
      number.setAttribute("aria-invalid", String(reason !== ""));
      if (reason !== "") return wrong(reason);
      right();
      choose(one.key, String(Number(text)));
    });
    line.append(el("label", { "data-setting": one.key }, `${one.label} `, select, number), " ");
  }
  mark_settings(line, chosen);
  return line;
}
