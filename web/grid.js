// SPDX-License-Identifier: Apache-2.0
//
// A table with keyboard navigation: one cell has the focus, the arrow keys move it, and Enter or a click expands the
// cell. Cells are the td and th of the body that carry data-cell.
// Read next: row_figure.js.

/**
 * @param {HTMLTableElement} table
 * @param {(id: string, is_open: boolean) => void} choose called with data-cell, and whether it is expanded
 */
export function make_grid(table, choose) {
  const rows = [...table.querySelectorAll("tbody tr")].map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll("[data-cell]")]))
    .filter((row) => row.length > 0);
  for (const cell of rows.flat()) cell.tabIndex = -1;
  if (rows[0]?.[0]) rows[0][0].tabIndex = 0;
  /** @param {HTMLElement} cell */
  const take_focus = (cell) => {
    for (const other of rows.flat()) other.tabIndex = other === cell ? 0 : -1;
    cell.focus();
  };
  table.addEventListener("click", (event) => {
    const cell = /** @type {HTMLElement} */ (event.target).closest("[data-cell]");
    if (cell instanceof HTMLElement) {
      take_focus(cell);
      choose(cell.dataset.cell ?? "", cell.getAttribute("aria-expanded") === "true");
    }
  });
  table.addEventListener("keydown", (event) => {
    const cell = /** @type {HTMLElement} */ (event.target);
    const row = rows.findIndex((cells) => cells.includes(cell));
    if (row < 0) return;
    const column = rows[row].indexOf(cell);
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, rows[row].length - 1] };
    if (event.key === "Enter" || event.key === " ") {
      choose(cell.dataset.cell ?? "", cell.getAttribute("aria-expanded") === "true");
    } else if (event.key in moves) {
      const [r, c] = moves[event.key];
      const next = rows[r]?.[Math.min(c, (rows[r]?.length ?? 1) - 1)];
      if (next && c >= 0) take_focus(next);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  });
}
