// The theme: that of the system, light, or dark. The script is in the page's head, so that no page flashes in another.
"use strict";

(() => {
  const THEMES = ["system", "light", "dark"];
  const LABELS = { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  const SIGNS = { system: "◐", light: "☀", dark: "☾" };
  const root = document.documentElement;

  function stored() {
    const theme = localStorage.getItem("quartet-theme");
    return THEMES.includes(theme) ? theme : "system";
  }

  function show(theme) {
    root.dataset.theme = theme;
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.textContent = SIGNS[theme];
      button.setAttribute("aria-label", LABELS[theme]);
      button.title = LABELS[theme];
    }
    // Drawings on a canvas do not follow the style sheet by themselves.
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  show(stored());
  document.addEventListener("DOMContentLoaded", () => {
    show(stored());
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.addEventListener("click", () => {
        const next = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
        localStorage.setItem("quartet-theme", next);
        show(next);
      });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(stored()));
})();
