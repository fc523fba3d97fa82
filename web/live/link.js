// SPDX-License-Identifier: Apache-2.0
//
// The address of a live page: what every page stores after #, and the texts and the hidden words.
//
//     #attention=sentence&head=4&query=5&step=mix&text=he%20sat%20on%20the%20bank&second=…&hidden=8,3
//
// Read next: state.js, live.js.

/** @typedef {{text: string | null, second: string, hidden: number[]}} Link */

/**
 * @param {string} address of the page's state
 * @param {Link} link
 */
export function link_of(address, link) {
  const parts = [address];
  if (link.text !== null) parts.push(`text=${encodeURIComponent(well_formed(link.text))}`);
  if (link.second !== "") parts.push(`second=${encodeURIComponent(well_formed(link.second))}`);
  if (link.hidden.length > 0) parts.push(`hidden=${link.hidden.join(",")}`);
  return parts.join("&");
}

/** Half a pair of surrogates has no code. @param {string} text */
function well_formed(text) {
  return text.replace(/\p{Cs}/gu, "\ufffd");
}

/**
 * @param {string} hash
 * @returns {Link}
 */
export function read_link(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  const hidden = (parts.get("hidden") ?? "").split(",").filter((text) => /^\d{1,4}$/.test(text)).map(Number);
  return { text: parts.get("text"), second: parts.get("second") ?? "", hidden: [...new Set(hidden)] };
}
