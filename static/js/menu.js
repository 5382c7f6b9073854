// Menus are <details>, which work by themselves; here they also close as one expects of a menu.
// The pages and the scope bar of a narrow screen are behind a button each.
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

  document.addEventListener("click", closeOthers);
  document.addEventListener("focusin", closeOthers);
})();
