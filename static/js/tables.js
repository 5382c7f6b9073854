// A table that fits its frame lets the page scroll, so that its head stays below the bar; a wider
// one scrolls sideways in its frame.
(() => {
  "use strict";
  const seen = new WeakSet();

  function measure(frame) {
    const table = frame.querySelector("table");
    if (table) frame.classList.toggle("fits", table.scrollWidth <= frame.clientWidth + 1);
  }

  // What sticks above: the bar says so itself.
  function bar() {
    const found = document.querySelector("[data-bar]") ?? document.querySelector(".picker");
    const style = found && getComputedStyle(found);
    const below = style?.position === "sticky" ? parseFloat(style.top) + found.offsetHeight : 0;
    document.documentElement.style.setProperty("--sticky-top", `${below || 0}px`);
  }

  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) measure(target);
    bar();
  });

  function watch() {
    for (const frame of document.querySelectorAll(".table-scroll")) {
      if (seen.has(frame)) continue;
      seen.add(frame);
      observer.observe(frame);
    }
    bar();
  }

  document.addEventListener("htmx:afterSettle", watch);
  watch();
})();
