// A rollout's page: choice of the value that colours the token strips, and marks where actions pointed on pictures.
"use strict";

(() => {
  const KEY = "quartet-tokens-by";
  const SVG = "http://www.w3.org/2000/svg";

  function colourBy(measure) {
    for (const strip of document.querySelectorAll(".strip")) strip.dataset.by = measure;
    for (const scale of document.querySelectorAll("[data-scale]")) scale.hidden = scale.dataset.scale !== measure;
    for (const button of document.querySelectorAll("[data-measure]")) {
      button.setAttribute("aria-pressed", String(button.dataset.measure === measure));
    }
    localStorage.setItem(KEY, measure);
  }

  function element(name, attributes) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  function cross([x, y], size) {
    const group = element("g", { class: "point" });
    for (const ring of ["halo", "ring"]) group.append(element("circle", { class: ring, cx: x, cy: y, r: size }));
    group.append(element("circle", { class: "dot", cx: x, cy: y, r: size / 5 }));
    return group;
  }

  // Points are in the picture's own pixels; each action has a path of one or two points.
  function drawPoints(figure) {
    const [image, svg] = [figure.querySelector("img"), figure.querySelector("svg")];
    svg.setAttribute("viewBox", `0 0 ${image.naturalWidth} ${image.naturalHeight}`);
    const size = Math.max(image.naturalWidth, image.naturalHeight) / 30;
    for (const path of JSON.parse(svg.dataset.paths)) {
      if (path.length === 2) {
        const [[x1, y1], [x2, y2]] = path;
        for (const line of ["halo", "path"]) svg.append(element("line", { class: line, x1, y1, x2, y2 }));
      }
      for (const point of path) svg.append(cross(point, size));
    }
  }

  function explain(figure) {
    const note = document.createElement("p");
    note.className = "muted small";
    note.textContent = "The picture cannot be shown: its blob is missing or damaged.";
    figure.replaceWith(note);
  }

  for (const figure of document.querySelectorAll("[data-picture]")) {
    const image = figure.querySelector("img");
    if (image.complete && image.naturalWidth) drawPoints(figure);
    else {
      image.addEventListener("load", () => drawPoints(figure));
      image.addEventListener("error", () => explain(figure));
      if (image.complete) explain(figure);
    }
  }
  for (const button of document.querySelectorAll("[data-measure]")) {
    button.addEventListener("click", () => colourBy(button.dataset.measure));
  }
  const stored = localStorage.getItem(KEY);
  if (document.querySelector(`[data-measure="${CSS.escape(stored ?? "")}"]`)) colourBy(stored);
})();
