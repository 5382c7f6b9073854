// Buttons that raise or lower an amount by one; what is no whole number is left alone.
(() => {
  "use strict";

  function show(root) {
    for (const button of root.querySelectorAll("[data-stepper] [data-step]")) button.hidden = false;
  }

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-step]");
    const field = button && button.closest("[data-stepper]")?.querySelector("input");
    if (!field || !/^\d+$/.test(field.value.trim())) return;
    field.value = String(Math.max(0, Number(field.value) + Number(button.dataset.step)));
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });

  document.addEventListener("htmx:load", (event) => show(event.target));
  show(document);
})();
