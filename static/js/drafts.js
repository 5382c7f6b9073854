// A new window is swapped into the page without its header. Links and fields outside of what was
// swapped then still carry the old one: they are told the query that the window control brings.
(() => {
  "use strict";

  const HEADER = [".topbar", ".subnav", ".crumbs"].map((part) => `${part} a[href*='?']`).join();

  function carry(link, query) {
    const { pathname, hash, origin } = new URL(link.href);
    if (origin === window.location.origin) link.setAttribute("href", pathname + query + hash);
  }

  function field(name, value) {
    const input = document.createElement("input");
    Object.assign(input, { type: "hidden", name, value });
    return input;
  }

  document.addEventListener("htmx:afterSwap", (event) => {
    const picker = event.target instanceof Element && event.target.querySelector("[data-kept]");
    if (!picker) return;
    const query = `?${picker.dataset.kept}`;
    for (const link of document.querySelectorAll(HEADER)) {
      carry(link, query);
    }
    for (const form of document.querySelectorAll(".topbar form[role='search']")) {
      for (const old of form.querySelectorAll("input[type='hidden']")) old.remove();
      form.prepend(...[...new URLSearchParams(query)].map((pair) => field(...pair)));
    }
  });
})();
