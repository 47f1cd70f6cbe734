// A rollout's page: choice of the value that colours the token strips.
"use strict";

(() => {
  const KEY = "quartet-tokens-by";

  function colourBy(measure) {
    for (const strip of document.querySelectorAll(".strip")) strip.dataset.by = measure;
    for (const scale of document.querySelectorAll("[data-scale]")) scale.hidden = scale.dataset.scale !== measure;
    for (const button of document.querySelectorAll("[data-measure]")) {
      button.setAttribute("aria-pressed", String(button.dataset.measure === measure));
    }
    localStorage.setItem(KEY, measure);
  }

  for (const button of document.querySelectorAll("[data-measure]")) {
    button.addEventListener("click", () => colourBy(button.dataset.measure));
  }
  const stored = localStorage.getItem(KEY);
  if (document.querySelector(`[data-measure="${CSS.escape(stored ?? "")}"]`)) colourBy(stored);
})();
