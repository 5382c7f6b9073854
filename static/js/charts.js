// Draws the figures that the server put into the page, once they come into view, in the colours
// of the page's theme. Plotly is loaded with the first of them.
(() => {
  "use strict";
  const PLOTLY = document.currentScript.dataset.plotly;
  // The basic bundle brings rules for maps that it does not draw and adds them to the page in a
  // style element of this id unless one is there; our content security policy refuses such an
  // element, so a stand-in takes its place. The id changes with Plotly's version.
  const MAP_STYLE_ID = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
  // What fits between the margins of a card on A4 or US Letter laid across, in CSS pixels.
  const PAPER_WIDTH = 860;
  const CONFIG = { displayModeBar: false, locale: "en-US" };
  let loading = null;

  function plotly() {
    loading ??= new Promise((resolve, reject) => {
      if (!document.getElementById(MAP_STYLE_ID)) {
        const standIn = document.createElement("template");
        standIn.id = MAP_STYLE_ID;
        document.head.append(standIn);
      }
      const script = document.createElement("script");
      script.src = PLOTLY;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error("Plotly could not be loaded"));
      document.head.append(script);
    });
    return loading;
  }

  function hasTwoLines(axis) {
    return axis.ticktext.some((text) => text.includes("<br>"));
  }

  // Labels of the time axis stay level, so a narrow chart gets fewer of them.
  function thinned(axis, width) {
    const step = Math.ceil(axis.tickvals.length / Math.max(1, Math.floor(width / 75)));
    const some = (_, index) => index % step === 0;
    return { ...axis, tickvals: axis.tickvals.filter(some), ticktext: axis.ticktext.filter(some) };
  }

  function themed(layout, width) {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const text = colour("--portal-chart-text");
    const line = colour("--portal-chart-line");
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, fixedrange: true };
    return {
      ...layout,
      width,
      xaxis: { ...thinned(layout.xaxis, width), ...axis },
      yaxis: { ...layout.yaxis, ...axis },
      font: { color: text, family: getComputedStyle(document.body).fontFamily, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: colour("--portal-chart-hover"), font: { color: text } },
      margin: { l: 40, r: 8, t: 20, b: hasTwoLines(layout.xaxis) ? 40 : 26 },
      showlegend: false,
      hovermode: "closest",
    };
  }

  // The lines of a pattern are drawn over the page, so they need the page's own ground.
  function patterned(traces) {
    const ground = getComputedStyle(document.documentElement)
      .getPropertyValue("--portal-chart-hover")
      .trim();
    return traces.map((trace) =>
      trace.marker.pattern
        ? {
            ...trace,
            marker: {
              ...trace.marker,
              pattern: { ...trace.marker.pattern, fgcolor: trace.marker.color, bgcolor: ground },
            },
          }
        : trace,
    );
  }

  async function draw(canvas, width = canvas.clientWidth) {
    const source = document.getElementById(canvas.dataset.chart);
    if (!source) return;
    const figure = JSON.parse(source.textContent);
    try {
      const Plotly = await plotly();
      if (!canvas.isConnected) return;
      if (!canvas.dataset.drawn) canvas.replaceChildren();
      const layout = themed(figure.layout, width);
      await Plotly.react(canvas, patterned(figure.data), layout, CONFIG);
      canvas.dataset.drawn = "yes";
    } catch (error) {
      canvas.dataset.drawn = "failed";
      canvas.textContent = `${error.message}; the table below has the same numbers.`;
    }
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "200px" },
  );

  function watch() {
    for (const canvas of document.querySelectorAll("[data-chart]:not([data-drawn])")) {
      seen.observe(canvas);
    }
  }

  function redraw(selector, width) {
    for (const canvas of document.querySelectorAll(selector)) draw(canvas, width);
  }

  document.addEventListener("DOMContentLoaded", watch);
  document.addEventListener("htmx:afterSettle", watch);
  document.addEventListener("htmx:beforeSwap", (event) => {
    for (const canvas of event.detail.target.querySelectorAll("[data-drawn=yes]")) {
      seen.unobserve(canvas);
      window.Plotly?.purge(canvas);
    }
  });
  document.addEventListener("themechange", () => redraw("[data-drawn=yes]"));
  window.addEventListener("resize", () => redraw("[data-drawn=yes]"));
  window.addEventListener("beforeprint", () => redraw("[data-chart]", PAPER_WIDTH));
  window.addEventListener("afterprint", () => redraw("[data-drawn=yes]"));
})();
