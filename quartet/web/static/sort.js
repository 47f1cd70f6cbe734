// Sorts a table by the column whose head is pressed: by data-value if there is one, otherwise by the text, as a number
// if possible. A refresh brings the server's columns and order, so the fresh page gets the buttons and the chosen order
// before its differences are applied. A column is known by its data-column or, without one, by the text of its head.
"use strict";

(() => {
  const tablesOf = (page) => [...page.querySelectorAll("table[data-sortable]")];
  const headsOf = (table) => [...table.tHead.rows[0].cells];
  const nameOf = (head) => head.dataset.column ?? head.textContent.trim();

  function keyOf(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number.parseFloat(text.replace(/[,≈\s]/g, ""));
    return Number.isNaN(number) ? text : number;
  }

  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? 1 : -1; // unknown values come first in ascending order
  }

  function order(table, head, direction) {
    for (const other of headsOf(table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const [column, sign] = [head.cellIndex, direction === "ascending" ? 1 : -1];
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(keyOf(a, column), keyOf(b, column)) * sign));
  }

  function choose(head) {
    const before = head.getAttribute("aria-sort");
    const words = !head.classList.contains("num");
    const rising = before === "descending" || (words && before !== "ascending"); // first press: numbers descending
    order(head.closest("table"), head, rising ? "ascending" : "descending");
  }

  function addButtons(table) {
    for (const head of headsOf(table)) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
    }
  }

  function prepare(fresh, shown) {
    addButtons(fresh);
    const chosen = shown && headsOf(shown).find((head) => head.hasAttribute("aria-sort"));
    const head = chosen && headsOf(fresh).find((head) => nameOf(head) === nameOf(chosen));
    if (head) order(fresh, head, chosen.getAttribute("aria-sort"));
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("table[data-sortable] button.sort");
    if (button) choose(button.closest("th"));
  });
  document.addEventListener("refreshing", ({ detail: page }) => {
    const shown = tablesOf(document);
    tablesOf(page).forEach((table, place) => prepare(table, shown[place]));
  });
  tablesOf(document).forEach(addButtons);
})();
