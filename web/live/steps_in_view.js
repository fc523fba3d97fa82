// SPDX-License-Identifier: Apache-2.0
//
// The steps of a lesson after an edit: those in view are drawn at once, and the others a few at a time when no number
// moves. A later picture takes over.
//
// Read next: patch.js, numbers_view.js.
import { slice } from "../map_figure.js";
import { step_at } from "../article.js";

const still = 300;  // milliseconds without a change, after which the steps out of view are drawn

/**
 * @param {(old: Element, part: HTMLElement, patches: boolean) => boolean} place makes an old part equal to a new one, unless only a replacement helps
 * @param {() => void} done
 */
export function patches_of_steps(place, done) {
  let round = 0;
  let waiting = 0;
  /** @param {Element} section */
  const renew = (section) => {
    const fresh = section.isConnected && step_at(Number(section.querySelector("h3")?.id.replace("step-", "")));
    if (fresh && !place(section, fresh, true)) section.replaceWith(fresh);
  };
  return {
    are_waiting: () => waiting > 0,
    stop: () => { ++round; },
    /** @param {() => void} draw draws the other parts: after the steps are measured, so that the page is laid out once */
    renew: (draw) => {
      const mine = ++round;
      const sections = [...document.querySelectorAll("main > .steps > .step")];
      const seen = sections.filter((section) => {
        const { top, bottom } = section.getBoundingClientRect();
        return bottom > 0 && top < window.innerHeight;
      });
      draw();
      for (const section of seen) renew(section);
      const others = sections.filter((section) => !seen.includes(section));
      waiting = others.length;
      const next = () => {
        if (mine !== round) return;
        const begun = performance.now();
        while (others.length > 0 && performance.now() - begun < slice) {
          renew(/** @type {Element} */ (others.shift()));
        }
        waiting = others.length;
        if (waiting > 0) setTimeout(next, 0);
        else done();
      };
      setTimeout(next, still);
    } };
}
