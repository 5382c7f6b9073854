// What a page says of "now" fetches itself every minute. A hidden page requests nothing and
// catches up when it is shown; an answer that fails to come leaves the old one with its time,
// rather than the whole page as for what the reader asked for (failures.js).
(() => {
  "use strict";

  function now(event) {
    const { target } = event;
    return target instanceof Element && target.matches("[data-now]") ? target : null;
  }

  function keep(event) {
    const part = now(event);
    if (!part) return;
    event.stopImmediatePropagation();
    const time = part.querySelector("[data-as-of]");
    if (time && !part.dataset.stale) time.textContent += ", could not be refreshed since";
    part.dataset.stale = "yes";
  }

  // What somebody has opened stays open: by the names that say what it is, not by its place.
  let opened = new Map();
  function kept(part) {
    return part.querySelectorAll("details[data-keep-open]");
  }
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = now(event);
    if (part) opened = new Map([...kept(part)].map((one) => [one.dataset.keepOpen, one.open]));
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (!opened.size) return;
    for (const one of kept(document)) {
      if (opened.has(one.dataset.keepOpen)) one.open = opened.get(one.dataset.keepOpen);
    }
    opened = new Map();
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (now(event) && document.hidden) event.preventDefault();
  });
  // Before failures.js, which listens when they bubble.
  document.addEventListener("htmx:responseError", keep, true);
  document.addEventListener("htmx:sendError", keep, true);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-now]")) window.htmx?.trigger(part, "look");
  });
})();
