// Sorts a table by the column whose head is pressed: by data-value if there is one, otherwise by the text, as a number
// if possible. A refresh of the page brings the server's order, so the chosen order is restored.
"use strict";

for (const table of document.querySelectorAll("table[data-sortable]")) {
  const [heads, body] = [[...table.tHead.rows[0].cells], table.tBodies[0]];

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number.parseFloat(text.replace(/[,≈\s]/g, ""));
    return Number.isNaN(number) ? text : number;
  };

  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? 1 : -1; // unknown values come first in ascending order
  };

  const sort = () => {
    const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    if (column < 0) return;
    const sign = heads[column].getAttribute("aria-sort") === "ascending" ? 1 : -1;
    body.append(...[...body.rows].sort((a, b) => compare(keyOf(a, column), keyOf(b, column)) * sign));
  };

  const choose = (column) => {
    const before = heads[column].getAttribute("aria-sort");
    const words = !heads[column].classList.contains("num");
    const rising = before === "descending" || (words && before !== "ascending"); // first press: numbers descending
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", rising ? "ascending" : "descending");
    sort();
  };

  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    button.addEventListener("click", () => choose(column));
    head.append(button);
  }
  document.addEventListener("refreshed", sort);
}
