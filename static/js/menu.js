// Menus are <details>, which work by themselves; here they also close as one expects of a menu.
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

  document.addEventListener("click", closeOthers);
  document.addEventListener("focusin", closeOthers);
})();
