// Menus are <details>, which work by themselves; here they also close as one expects of a menu.
// The pages and the scope bar of a narrow screen are behind a button each; what filters a page
// stays open there while its results are swapped, and so does what a phone has opened.
(() => {
  "use strict";
  const OPEN = "details.menu[open]";

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll(OPEN)) {
      const held = menu.contains(document.activeElement);
      menu.open = false;
      if (held) menu.querySelector("summary").focus();
    }
  });

  function closeOthers(event) {
    for (const menu of document.querySelectorAll(OPEN)) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  }

  document.addEventListener("click", (event) => {
    const toggle = event.target.closest?.(".nav-toggle, .picker-toggle");
    if (!toggle) return;
    const open = toggle.getAttribute("aria-expanded") !== "true";
    toggle.setAttribute("aria-expanded", String(open));
  });

  let filtering = null;
  let unfolded = [];
  const folds = (part) => [...(part.querySelectorAll?.("[data-fold]") ?? [])];
  document.addEventListener("htmx:beforeSwap", (event) => {
    const open = folds(event.target).filter((one) => one.open || one.checked);
    unfolded = open.map((one) => one.dataset.fold);
    const row = event.target.querySelector?.(".filter-row[open]");
    const field = document.activeElement;
    filtering = row && { id: row.contains(field) ? field.id : "", caret: field.selectionEnd };
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const one of folds(document)) {
      if (unfolded.includes(one.dataset.fold)) one["open" in one ? "open" : "checked"] = true;
    }
    unfolded = [];
    const row = filtering && document.querySelector(".filter-row");
    if (row) {
      row.open = true;
      const field = filtering.id && document.getElementById(filtering.id);
      if (field && field !== document.activeElement) {
        field.focus();
        if (filtering.caret != null) field.setSelectionRange?.(filtering.caret, filtering.caret);
      }
    }
    filtering = null;
  });

  document.addEventListener("click", closeOthers);
  document.addEventListener("focusin", closeOthers);

  // On a narrow screen the pages of a group scroll sideways: show the one that is open.
  const pages = document.querySelector(".subnav");
  const open = pages?.querySelector("[aria-current]");
  if (open) pages.scrollLeft = open.offsetLeft - (pages.clientWidth - open.offsetWidth) / 2;
})();
