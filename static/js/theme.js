// Light or dark: the system's choice unless the reader made one here. Runs before the page is
// drawn, so that a dark page does not flash white.
(() => {
  "use strict";
  const KEY = "gpuportal-theme";
  const CHOICES = ["auto", "light", "dark"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  function chosen() {
    try {
      const stored = localStorage.getItem(KEY);
      return CHOICES.includes(stored) ? stored : "auto";
    } catch {
      return "auto"; // storage is switched off: the system decides
    }
  }

  function apply() {
    const choice = chosen();
    const theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
    if (root.dataset.bsTheme !== theme) {
      root.dataset.bsTheme = theme;
      document.dispatchEvent(new CustomEvent("themechange"));
    }
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.textContent = `Theme: ${choice}`;
      button.setAttribute("aria-label", `Theme: ${choice}. Change it.`);
    }
  }

  apply();
  dark.addEventListener("change", apply);
  // Paper is white. The charts are drawn anew for it after this, see charts.js.
  window.addEventListener("beforeprint", () => {
    root.dataset.bsTheme = "light";
  });
  window.addEventListener("afterprint", apply);
  document.addEventListener("DOMContentLoaded", apply);
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("[data-theme-switch]")) return;
    const next = CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length];
    try {
      localStorage.setItem(KEY, next);
    } catch {
      return;
    }
    apply();
  });
})();
