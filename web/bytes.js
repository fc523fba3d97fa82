// SPDX-License-Identifier: Apache-2.0
//
// Base64 to bytes. The worker of a live page has this function, too, from its text (live/worker.js).

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function bytes_of(text) {
  if ("fromBase64" in Uint8Array && typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; ++i) bytes[i] = characters.charCodeAt(i);
  return bytes;
}
