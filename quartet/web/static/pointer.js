// Marks of a turn's actions on its picture, and the pointer's way between them.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const RINGS = { double_click: 2, triple_click: 3, move: 0 };

  function element(name, attributes) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  // A white halo below each stroke keeps it visible on any picture.
  function stroked(name, kind, attributes) {
    return ["halo", kind].map((one) => element(name, { class: one, ...attributes }));
  }

  function way([x1, y1], [x2, y2], kind) {
    return stroked("line", kind, { x1, y1, x2, y2 });
  }

  function arrow([x1, y1], [x2, y2], size) {
    const [angle, back] = [Math.atan2(y2 - y1, x2 - x1), size * 0.9];
    const corner = (turn) => `${x2 - back * Math.cos(angle + turn)} ${y2 - back * Math.sin(angle + turn)}`;
    const head = stroked("path", "path", { d: `M${corner(0.5)}L${x2} ${y2}L${corner(-0.5)}` });
    return [...way([x1, y1], [x2, y2], "path"), ...head];
  }

  function spot([cx, cy], size, rings) {
    const group = element("g", { class: "point" });
    for (let ring = 0; ring < rings; ring += 1) {
      group.append(...stroked("circle", "ring", { cx, cy, r: size * (1 + 0.45 * ring) }));
    }
    group.append(element("circle", { class: "dot", cx, cy, r: size / 5 }));
    return group;
  }

  function scrolled([x, y], [right, down], size) {
    const longest = Math.max(Math.abs(right), Math.abs(down)) || 1;
    return arrow([x, y], [x + (3 * size * right) / longest, y + (3 * size * down) / longest], size);
  }

  function number([x, y], text, size) {
    const node = element("text", { class: "count", x: x + size, y: y - size, "font-size": 1.6 * size });
    node.textContent = text;
    return node;
  }

  // Points are in pixels of the picture, or in the units of the mark's frame.
  function located(mark, width, height) {
    const [across, down] = mark.frame ?? [width, height];
    return mark.points.map(([x, y]) => [(x * width) / across, (y * height) / down]);
  }

  function drawMarks(figure) {
    const [image, svg] = [figure.querySelector("img"), figure.querySelector("svg")];
    if (!svg.dataset.marks) return; // a picture of a prompt
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [size, marks] = [Math.max(width, height) / 40, JSON.parse(svg.dataset.marks)];
    let before = JSON.parse(svg.dataset.from);
    marks.forEach((mark, place) => {
      const points = located(mark, width, height);
      const drawing = svg.appendChild(element("g", { class: mark.done ? "done" : "undone" }));
      if (before && mark.done) drawing.append(...way(before, points[0], "travel"));
      if (mark.gesture === "scroll") drawing.append(...scrolled(points[0], mark.scrolled, size));
      if (points.length === 2) drawing.append(...arrow(points[0], points[1], size));
      points.forEach((point, end) => drawing.append(spot(point, size, end ? 0 : (RINGS[mark.gesture] ?? 1))));
      if (marks.length > 1) drawing.append(number(points[0], place + 1, size));
      if (mark.done) before = points.at(-1);
    });
  }

  function explain(figure) {
    const note = document.createElement("p");
    note.className = "muted small";
    note.textContent = "The picture cannot be shown: its blob is missing or damaged.";
    figure.replaceWith(note);
  }

  for (const figure of document.querySelectorAll("[data-picture]")) {
    const image = figure.querySelector("img");
    if (image.complete && image.naturalWidth) drawMarks(figure);
    else {
      image.addEventListener("load", () => drawMarks(figure));
      image.addEventListener("error", () => explain(figure));
      if (image.complete) explain(figure);
    }
  }
})();
