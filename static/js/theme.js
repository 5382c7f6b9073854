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
    // Without scripts the choice could not be kept, so it is shown by this one.
    for (const part of document.querySelectorAll("[data-needs-scripts]")) part.hidden = false;
    for (const radio of document.querySelectorAll("input[name=theme]")) {
      radio.checked = radio.value === choice;
    }
  }

  root.dataset.scripts = "on"; // what folds away without a scripted button stays open
  apply();
  dark.addEventListener("change", apply);
  window.addEventListener("storage", apply); // chosen in another tab
  // Paper is white. The charts are drawn anew for it after this, see charts.js.
  window.addEventListener("beforeprint", () => {
    root.dataset.bsTheme = "light";
  });
  window.addEventListener("afterprint", apply);
  document.addEventListener("DOMContentLoaded", apply);
  document.addEventListener("change", (event) => {
    if (!(event.target instanceof Element) || !event.target.matches("input[name=theme]")) return;
    try {
      localStorage.setItem(KEY, event.target.value);
    } catch {
      // Nothing is kept: apply() puts the control back to what holds.
    }
    apply();
  });
})();
