// SPDX-License-Identifier: Apache-2.0
//
// While the pointer is pressed, nothing is replaced: an element that is replaced between press and release gets no click.
// Read next: page.js, live/answers.js.

let is_pressed = false;
/** What waits for the release, in order. @type {(() => void)[]} */
let waiting_changes = [];

/** Changes the page now, or after the release of the pointer and its click. @param {() => void} change */
export function after_press(change) {
  if (is_pressed || waiting_changes.length > 0) waiting_changes.push(change);
  else change();
}

function release() {
  if (!is_pressed) return;
  is_pressed = false;
  // The click comes in the same task as the release.
  setTimeout(() => {
    const changes = waiting_changes;
    waiting_changes = [];
    changes.forEach(after_press);
  });
}

window.addEventListener("pointerdown", (event) => {
  is_pressed = event.isPrimary && event.button === 0;
}, true);
// The release over an open list of options is not reported; a later event shows it.
for (const name of ["pointerup", "pointercancel", "keydown", "change", "blur"]) window.addEventListener(name, release, true);
window.addEventListener("pointermove", (event) => {
  if (event.buttons === 0) release();
}, true);
