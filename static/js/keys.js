// Keys: j and k move through the rows of the list (or to the next and previous item), Enter opens
// what is focused, g and a letter go to a page of the navigation, ? lists the keys. Never while
// somebody types or a dialog is open, and not at all once switched off in the dialog.
(() => {
  "use strict";
  const WAIT_MS = 1500;
  const STORE = "gpuportal-keys";
  const root = document.documentElement;
  let goingUntil = 0;

  function isOff() {
    return root.dataset.keys === "off";
  }

  function isTyping(target) {
    return (
      target instanceof HTMLElement &&
      (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"))
    );
  }

  // What is listed: tables and lists that say so, else the first table of the page with links.
  function rows() {
    const marked = document.querySelectorAll("main [data-rows] tbody tr, main [data-row]");
    if (marked.length) return [...marked].filter((row) => row.checkVisibility());
    for (const table of document.querySelectorAll("main table")) {
      const found = [...table.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility());
      if (found.some((row) => row.querySelector("a[href]"))) return found;
    }
    return [];
  }

  // A row that is folded is opened first; its links cannot be seen yet.
  function stop(row) {
    const link = row.querySelector(":scope > details:first-child:not([open]) > summary") ?? row.querySelector("a[href]");
    if (!link) row.tabIndex = -1;
    return link ?? row;
  }

  // From the row in which the focus is; at the ends it stays.
  function move(step) {
    const item = document.querySelector(`main a[data-item="${step > 0 ? "next" : "previous"}"]`);
    if (item) {
      item.click();
      return true;
    }
    const all = rows();
    if (!all.length) return false;
    const at = all.findIndex((row) => row.contains(document.activeElement));
    const to = at < 0 ? 0 : Math.min(Math.max(at + step, 0), all.length - 1);
    const place = stop(all[to]);
    place.focus({ focusVisible: true });
    all[to].scrollIntoView({ block: "nearest" });
    return true;
  }

  function pages() {
    const found = new Map();
    for (const link of document.querySelectorAll("a[data-key]")) {
      if (!found.has(link.dataset.key)) found.set(link.dataset.key, link);
    }
    return found;
  }

  function go(key) {
    const link = pages().get(key);
    if (link) window.location.assign(link.href);
    return Boolean(link);
  }

  function showKeys() {
    const dialog = document.getElementById("keyboard");
    if (!dialog) return false;
    const list = dialog.querySelector("[data-key-pages]");
    list.replaceChildren(
      ...[...pages()].map(([key, link]) => {
        const row = dialog.querySelector("template").content.cloneNode(true);
        row.querySelector("[data-letter]").textContent = key;
        row.querySelector("dd").textContent = link.dataset.keyLabel ?? link.firstChild.textContent.trim();
        return row;
      }),
    );
    dialog.showModal();
    return true;
  }

  const ACTIONS = {
    j: () => move(1),
    k: () => move(-1),
    "?": showKeys,
    g: () => {
      goingUntil = Date.now() + WAIT_MS;
      return true;
    },
  };

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(target) || document.querySelector("dialog[open]")) return;
    if (isOff() && key !== "?") return;
    const going = Date.now() < goingUntil;
    goingUntil = 0;
    if (going ? go(key) : ACTIONS[key]?.()) event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("[data-show-keys]")) showKeys();
  });

  // The choice is the browser's, as the theme is: single keys can get in the way of speech input.
  document.addEventListener("change", (event) => {
    if (!(event.target instanceof Element && event.target.matches("[data-keys-on]"))) return;
    root.dataset.keys = event.target.checked ? "on" : "off";
    localStorage.setItem(STORE, root.dataset.keys);
  });
  root.dataset.keys = localStorage.getItem(STORE) ?? "on";
  const choice = document.querySelector("[data-keys-on]");
  if (choice) choice.checked = !isOff();

  // Who listens is told that a part of the page is being fetched; the style sheet dims it.
  document.addEventListener("htmx:beforeRequest", (event) => {
    event.detail.target?.setAttribute("aria-busy", "true");
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    event.detail.target?.removeAttribute("aria-busy");
  });
})();
