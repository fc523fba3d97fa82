// SPDX-License-Identifier: Apache-2.0
//
// A part of the page becomes a newly drawn one by the changes of its texts and attributes alone, so that a changed number
// costs no more than its cell, and the focus and a number that is being typed stay. Elements keep their listeners: what
// depends on more than names and indices (the foot, pictures, tables with other cells) is replaced as a whole.
//
// Read next: document.js.

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
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "style" && !(roving && name === "tabindex")) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "style" && !(roving && name === "tabindex") && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (editing) old.classList.add("editing");
  // The policy of the page allows styles of objects, not attributes.
  if (old instanceof HTMLElement && fresh instanceof HTMLElement && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
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
  if (is_other(old, fresh)) return false;
  patch_attributes(old, fresh);
  const [kept, made] = [[...old.childNodes], [...fresh.childNodes]];
  if (old.classList.contains("editing")) {
    if (kept[0] && made[0]) patch(kept[0], made[0]);
  } else {
    for (const [i, child] of made.entries()) {
      if (kept[i] === undefined) old.append(child);
      else if (!patch(kept[i], child)) old.replaceChild(child, kept[i]);
    }
    for (const child of kept.slice(made.length)) old.removeChild(child);
  }
  return true;
}
