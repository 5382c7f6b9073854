// Buttons that copy the text of an element; hidden where no script runs.
(() => {
  "use strict";
  const SAID_MS = 2000;

  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, SAID_MS);
  }

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-copy]");
    if (button) copy(button);
  });

  function show() {
    for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  }

  document.addEventListener("htmx:afterSettle", show);
  show();
})();
