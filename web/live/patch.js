// SPDX-License-Identifier: Apache-2.0
//
// A part of the page becomes a newly drawn one by the changes of its texts and attributes alone, so that a changed number
// costs no more than its cell, and the focus and a number that is being typed stay. Elements keep their listeners: what
// depends on more than names and indices (the foot, pictures, tables with other cells) is replaced as a whole.
//
// What the live page adds to a part by itself (data-own) stays. Read next: numbers_view.js, live.js.

/** @param {Element} table */
function cells_named(table) {
  return [...table.querySelectorAll("tbody > tr")].map((row) => [...row.querySelectorAll("[data-cell]")].map((cell) => cell.getAttribute("data-cell")).join("|")).join("\n");
}

/** Whether an element can only be replaced. @param {Element} old @param {Element} fresh */
function is_other(old, fresh) {
  return old.nodeName !== fresh.nodeName || ["CANVAS", "FOOTER", "DETAILS"].includes(old.nodeName) || old.getAttribute("data-focus") !== fresh.getAttribute("data-focus") ||
    (old.getAttribute("role") === "grid" && cells_named(old) !== cells_named(fresh));
}

/** @param {Element} old @param {Element} fresh */
function patch_attributes(old, fresh) {
  const roving = old.hasAttribute("data-cell") || old.getAttribute("role") === "spinbutton";
  const editing = old.classList.contains("editing");
  // The policy of the page allows styles of objects, not attributes.
  const put = (/** @type {string} */ name, /** @type {string | null} */ value) => {
    if ((roving && name === "tabindex") || old.getAttribute(name) === value) return;
    if (name === "style") /** @type {HTMLElement} */ (old).style.cssText = value ?? "";
    else if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  };
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) put(name, null);
  for (const name of fresh.getAttributeNames()) put(name, fresh.getAttribute(name));
  if (editing) old.classList.add("editing");
}

/**
 * Makes `old` equal to `fresh`, whose nodes it may take.
 * @param {Node} old
 * @param {Node} fresh
 * @returns {boolean} false if only a replacement helps
 */
export function patch(old, fresh) {
  if (old === fresh) return true;
  if (!(old instanceof Element) || !(fresh instanceof Element)) {
    if (old.nodeType !== fresh.nodeType) return false;
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return true;
  }
  // Most lines of a table stay as they are.
  if (["TR", "P", "svg"].includes(old.nodeName) && old.isEqualNode(fresh)) return true;
  if (is_other(old, fresh)) return false;
  patch_attributes(old, fresh);
  if (old.classList.contains("editing")) {
    if (old.firstChild && fresh.firstChild) patch(old.firstChild, fresh.firstChild);
  } else {
    patch_children(old, [...fresh.childNodes]);
  }
  return true;
}

/**
 * Makes the children of `old` equal to others.
 * @param {Element} old
 * @param {Node[]} made
 */
export function patch_children(old, made) {
  const kept = [...old.childNodes].filter((child) => !(child instanceof HTMLElement && "own" in child.dataset));
  for (const [i, child] of made.entries()) {
    if (kept[i] === undefined) old.append(child);
    else if (!patch(kept[i], child)) old.replaceChild(child, kept[i]);
  }
  for (const child of kept.slice(made.length)) old.removeChild(child);
}
