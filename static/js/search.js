// The search box: the slash key leads to it, suggestions open below it, the arrow keys lead
// through them, and Escape goes back. Without this the box is a form with a page of results.
(() => {
  "use strict";

  function parts() {
    const form = document.querySelector("[data-search]");
    return {
      form,
      box: form?.querySelector("input[type=search]"),
      list: form?.querySelector(".search-suggestions"),
    };
  }

  function close() {
    const { list } = parts();
    if (list) list.hidden = true;
  }

  function types(target) {
    return (
      target instanceof HTMLElement &&
      (target.isContentEditable || target.matches("input, textarea, select"))
    );
  }

  // Moves the focus among the box and its suggestions; past the last one it stays.
  function move(step) {
    const { box, list } = parts();
    const stops = [box, ...list.querySelectorAll("a.hit")];
    const at = stops.indexOf(document.activeElement);
    stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
  }

  document.addEventListener("keydown", (event) => {
    const { form, box, list } = parts();
    if (!form || event.ctrlKey || event.metaKey || event.altKey) return;
    const off = document.documentElement.dataset.keys === "off"; // see keys.js
    if (event.key === "/" && !off && !types(event.target)) {
      event.preventDefault();
      box.focus();
      box.select();
    } else if (form.contains(event.target)) {
      const open = !list.hidden;
      if (event.key === "Escape" && open) {
        event.preventDefault(); // the browser would empty the box
        close();
        box.focus();
      } else if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        event.preventDefault();
        move(event.key === "ArrowDown" ? 1 : -1);
      }
    }
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    const { box, list } = parts();
    if (event.detail.target !== list) return;
    list.hidden = box.value.trim() === "" || document.activeElement !== box;
  });

  // Suggestions that do not come are no reason to leave the page (see failures.js).
  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(
      failure,
      (event) => {
        const { box } = parts();
        if (event.detail.elt !== box) return;
        event.stopImmediatePropagation();
        close();
      },
      true,
    );
  }

  document.addEventListener("focusin", (event) => {
    const { form, box, list } = parts();
    if (!form) return;
    if (!form.contains(event.target)) close();
    else if (event.target === box && list.childElementCount) list.hidden = box.value.trim() === "";
  });
  document.addEventListener("click", (event) => {
    const { form } = parts();
    if (form && !form.contains(event.target)) close();
  });
})();
