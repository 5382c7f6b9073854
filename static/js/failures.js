// A part of a page that could not be fetched: go to its address as a whole page, which says what
// is wrong. Left alone, htmx keeps the old numbers under the choice of a new window.
(() => {
  "use strict";

  function leave(event) {
    const { requestConfig, pathInfo } = event.detail;
    if (requestConfig.verb !== "get") return;
    window.location.assign(pathInfo.finalRequestPath);
  }

  document.addEventListener("htmx:responseError", leave);
  document.addEventListener("htmx:sendError", leave);
})();
