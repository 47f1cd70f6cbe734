// The tokens that stand for a picture in a prompt: marks the part of the picture that a token stands for.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function follow(block) {
    const [rows, columns, first] = ["rows", "columns", "first"].map((name) => Number(block.dataset[name]));
    const [width, height] = JSON.parse(block.dataset.part);
    const [slider, where, figure] = ["[role=slider]", "[data-where]", "figure"].map((one) => block.querySelector(one));
    const hint = where.textContent;
    let [column, row] = [0, 0];
    const grids = [slider, figure].filter(Boolean).map((place) => place.querySelector("svg"));
    const cells = grids.map((grid) => grid.appendChild(document.createElementNS(SVG, "rect")));

    function mark() {
      for (const cell of cells) {
        // Both drawings have cells as units.
        const attributes = { x: column, y: row, width: 1, height: 1, class: "patch" };
        for (const [name, value] of Object.entries(attributes)) cell.setAttribute(name, value);
      }
      const place = row * columns + column;
      const text = `token ${first + place} of the prompt: row ${row + 1}, column ${column + 1}, pixels ${column * width} to ${
        (column + 1) * width - 1
      } across and ${row * height} to ${(row + 1) * height - 1} down`;
      slider.setAttribute("aria-valuenow", place + 1);
      slider.setAttribute("aria-valuetext", text);
      where.textContent = text;
    }

    function leave() {
      if (document.activeElement === slider) return;
      for (const cell of cells) cell.setAttribute("class", "unmarked");
      where.textContent = hint;
    }

    function point(grid, event) {
      const box = grid.getBoundingClientRect();
      const place = (at, start, length, count) =>
        Math.min(count - 1, Math.max(0, Math.floor(((at - start) / length) * count)));
      column = place(event.clientX, box.left, box.width, columns);
      row = place(event.clientY, box.top, box.height, rows);
      mark();
    }

    for (const grid of grids) {
      grid.addEventListener("pointermove", (event) => point(grid, event));
      grid.addEventListener("pointerdown", (event) => point(grid, event));
      grid.addEventListener("pointerleave", leave);
    }
    slider.addEventListener("focus", mark);
    slider.addEventListener("blur", leave);
    slider.addEventListener("keydown", (event) => {
      if (!(event.key in KEYS)) return;
      const [right, down] = KEYS[event.key];
      column = Math.min(columns - 1, Math.max(0, column + right));
      row = Math.min(rows - 1, Math.max(0, row + down));
      mark();
      event.preventDefault();
    });
    leave();
  }

  for (const block of document.querySelectorAll("[data-patches]")) follow(block);
})();
