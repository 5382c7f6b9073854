// Draws the figures that the server put into the page, once they come into view, in the colours
// of the page's theme. Plotly is loaded with the first of them. Dragging over a chart sets the
// window, a click on a day opens that day, PNG saves the picture; each has another way for who
// has no mouse or no scripts: the window picker, and the table under the chart.
(() => {
  "use strict";
  const PLOTLY = document.currentScript.dataset.plotly;
  // The basic bundle brings rules for maps that it does not draw and adds them to the page in a
  // style element of this id unless one is there; our content security policy refuses such an
  // element, so a stand-in takes its place. The id changes with Plotly's version.
  const MAP_STYLE_ID = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
  // What fits between the margins of a panel on A4 or US Letter laid across, in CSS pixels.
  const PAPER_WIDTH = 860;
  const CONFIG = { displayModeBar: false, locale: "en-US", doubleClick: false };
  const PICTURE = { format: "png", width: 1200, height: 480, scale: 2 };
  // What an address says of the window, and of places in lists, which another window has not.
  const OF_WINDOW = ["window", "first", "last", "start", "end", "page", "pods", "cursor"];
  const HOUR = 3600_000;
  // Pixels: a bar is drawn this high at least, and hatched only where the hatch can be seen.
  const SLIVER = 2;
  const HATCHED_FROM = 7;
  const MARGINS = 65; // above and under the plot, at most
  // On a touch screen a drag scrolls the page.
  const mouse = window.matchMedia("(pointer: fine)");
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

  // ------------------------------------------------------------ colours

  // A token may hold any expression, so an element has to take it on to tell what it comes to.
  function palette() {
    const probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
    const read = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    return {
      text: read("--portal-chart-text"),
      line: read("--portal-chart-line"),
      gap: read("--portal-chart-gap"),
      card: read("--portal-card"),
      heading: read("--portal-text"),
      read,
      done: () => probe.remove(),
    };
  }

  // ------------------------------------------------------------ figure

  function hasTwoLines(axis) {
    return axis.ticktext.some((text) => text.includes("<br>"));
  }

  // Labels of the time axis stay level, so a narrow chart gets fewer of them.
  function thinned(axis, width) {
    const step = Math.ceil(axis.tickvals.length / Math.max(1, Math.floor(width / 75)));
    const some = (_, index) => index % step === 0;
    return { ...axis, tickvals: axis.tickvals.filter(some), ticktext: axis.ticktext.filter(some) };
  }

  // On a phone a gap has no room for words; the caption under the chart has them.
  function shortened(note) {
    return note.text === "not collected" ? { ...note, text: "?" } : note;
  }

  function themed(layout, colours, width) {
    const { text, line } = colours;
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line };
    return {
      ...layout,
      width,
      xaxis: {
        ...thinned(layout.xaxis, width),
        ...axis,
        fixedrange: !mouse.matches,
      },
      yaxis: { ...layout.yaxis, ...axis, fixedrange: true, nticks: 6 },
      shapes: layout.shapes.map((shape) => ({ ...shape, fillcolor: colours.gap })),
      annotations: width < 600 ? layout.annotations.map(shortened) : layout.annotations,
      font: { color: text, family: getComputedStyle(document.body).fontFamily, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 40, r: 8, t: 20, b: hasTwoLines(layout.xaxis) ? 40 : 26 },
      dragmode: mouse.matches ? "zoom" : false,
      showlegend: false,
      hovermode: "x",
    };
  }

  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

  // As the server writes days; browsers abbreviate September otherwise.
  function dayLabel(day, thisYear) {
    const [year, month, number] = day.split("-");
    return `${+number} ${MONTHS[month - 1]}${year === thisYear ? "" : ` ${year}`}`;
  }

  function labelsOf(periods) {
    const names = periods.labels ?? periods.days.map((day) => dayLabel(day, periods.year));
    return names.map((name, i) => (periods.notes[i] ? `${name}, ${periods.notes[i]}` : name));
  }

  const isBar = ({ type }) => type === "bar";
  // A capacity line and pending demand stand beside the parts that a box adds up.
  const isPart = ({ legendgroup }) => legendgroup !== "aside";

  // A line has points where it changes.
  const valueAt = (trace, index) =>
    trace.y[isBar(trace) ? index : trace.x.findLastIndex((x) => x <= index)];

  function highest(traces) {
    const bars = traces.filter(isBar);
    const tops = (bars[0]?.y ?? []).map((_, i) => bars.reduce((sum, { y }) => sum + (y[i] ?? 0), 0));
    return Math.max(...tops, ...traces.filter((one) => !isBar(one)).flatMap(({ y }) => y));
  }

  // Bars as they are drawn: a sliver is raised to what can be seen.
  function coloured(figure, colours, width, height) {
    const pixel = highest(figure.data) / Math.max(1, height - MARGINS);
    const edge = width < 8 * figure.data[0].y.length ? 0 : 0.5; // none around thin bars
    return figure.data.map((trace) => {
      const colour = colours.read(trace.meta);
      if (!isBar(trace)) return { ...trace, line: { ...trace.line, color: colour }, hoverinfo: "skip" };
      const marker = { color: colour, line: { color: colours.card, width: edge } };
      const pattern = trace.marker?.pattern;
      if (pattern) {
        const shape = trace.y.map((y) => (y < HATCHED_FROM * pixel ? "" : pattern.shape));
        marker.pattern = { ...pattern, shape, fgcolor: colour, bgcolor: colours.card };
      }
      return {
        ...trace,
        marker,
        y: trace.y.map((y) => (y > 0 ? Math.max(y, SLIVER * pixel) : y)),
        hoverinfo: "none", // the box is ours: Plotly's cannot name a period
      };
    });
  }

  function figureOf(id) {
    const source = document.getElementById(id);
    return source ? JSON.parse(source.textContent) : null;
  }

  // ------------------------------------------------------------ hover box

  const tenths = new Intl.NumberFormat("en-US", {
    minimumFractionDigits: 1,
    maximumFractionDigits: 1,
  });
  const short = (value) => (value > 0 && value < 0.05 ? "<0.1" : tenths.format(value));
  const PATTERNS = { "/": "hatched", x: "crossed", "|": "striped" };

  function element(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function line(trace, index, sum) {
    const row = element("li", "");
    const pattern = PATTERNS[trace.marker?.pattern?.shape] ?? "";
    const swatch = element("span", `swatch ${trace.meta.replace("--ledger-", "of-")} ${pattern}`);
    const value = valueAt(trace, index);
    row.append(
      swatch,
      element("span", "", trace.name),
      element("b", "", short(value)),
      element("i", "", isPart(trace) ? `${short((100 * value) / sum)} %` : ""),
    );
    return row;
  }

  // The classes from the top of the bar down, as they are seen, and their sum.
  function showBox(canvas, index, x) {
    const { data, layout } = figureOf(canvas.dataset.chart);
    const there = data.filter((trace) => valueAt(trace, index));
    const sum = there.filter(isPart).reduce((total, trace) => total + valueAt(trace, index), 0);
    const list = element("ul", "");
    list.append(...there.reverse().map((trace) => line(trace, index, sum)));
    const box = element("div", "chart-box");
    box.setAttribute("aria-hidden", "true"); // the table has it
    box.append(
      element("p", "chart-box-period", labelsOf(layout.meta)[index]),
      list,
      element("p", "chart-box-sum", `${short(sum)} ${layout.meta.measure ?? "GPU-hours"} in all`),
    );
    hideBox(canvas);
    canvas.append(box);
    const left = x + 24 + box.offsetWidth > canvas.clientWidth ? x - 24 - box.offsetWidth : x + 24;
    box.style.left = `${Math.max(0, left)}px`;
  }

  function hideBox(canvas) {
    canvas.querySelector(".chart-box")?.remove();
  }

  // ------------------------------------------------------------ window and day

  function go(query) {
    const url = new URL(window.location.href);
    for (const key of OF_WINDOW) url.searchParams.delete(key);
    for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
    url.hash = "";
    window.location.assign(url);
  }

  function span(periods, first, last) {
    if (periods.days) return { first: periods.days[first], last: periods.days[last] };
    const at = (hours) =>
      new Date(Date.parse(periods.start) + hours * HOUR).toISOString().replace(".000Z", "Z");
    return { start: at(first), end: at(last + 1) };
  }

  // Periods of which the greater part was dragged over; one at least.
  function dragged(from, to, count) {
    const inside = (index) => Math.min(count - 1, Math.max(0, index));
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    const [first, last] = [Math.ceil(low), Math.floor(high)];
    if (last >= first) return [inside(first), inside(last)];
    const only = inside(Math.round((low + high) / 2));
    return [only, only];
  }

  function listen(canvas) {
    canvas.on("plotly_relayout", (change) => {
      const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (from === undefined || to === undefined) return;
      const { meta } = figureOf(canvas.dataset.chart).layout;
      const count = (meta.days ?? meta.labels).length;
      go(span(meta, ...dragged(from, to, count)));
    });
    canvas.on("plotly_hover", ({ points: [{ pointNumber, xaxis }] }) =>
      showBox(canvas, pointNumber, xaxis._offset + xaxis.d2p(pointNumber)),
    );
    canvas.on("plotly_unhover", () => hideBox(canvas));
    canvas.on("plotly_click", ({ points }) => {
      const { meta } = figureOf(canvas.dataset.chart).layout;
      if (meta.days) go(span(meta, points[0].pointNumber, points[0].pointNumber));
    });
  }

  // ------------------------------------------------------------ picture

  function named(button, meta) {
    const slug = (text) => text.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-");
    const title = button.closest("section").querySelector("h2").textContent;
    return `gpuportal_${slug(title)}_${meta.first}_${meta.last}.png`;
  }

  async function save(button) {
    const figure = figureOf(button.dataset.png);
    const section = button.closest("section");
    const Plotly = await plotly();
    const colours = palette();
    const caption = section.querySelector("figcaption").textContent;
    const layout = {
      ...themed(figure.layout, colours, PICTURE.width),
      height: PICTURE.height,
      paper_bgcolor: colours.card,
      margin: { l: 60, r: 24, t: 56, b: 84 },
      showlegend: true,
      legend: { orientation: "h", y: -0.16, traceorder: "normal" },
      title: { text: caption, font: { color: colours.heading, size: 15 }, x: 0.02, xanchor: "left" },
    };
    const data = coloured(figure, colours, PICTURE.width, PICTURE.height - 90);
    colours.done();
    const link = document.createElement("a");
    link.href = await Plotly.toImage({ data, layout, config: CONFIG }, PICTURE);
    link.download = named(button, figure.layout.meta);
    link.click();
  }

  // ------------------------------------------------------------ drawing

  async function draw(canvas, paperWidth) {
    const width = paperWidth ?? canvas.clientWidth;
    const figure = figureOf(canvas.dataset.chart);
    if (!figure) return;
    try {
      const Plotly = await plotly();
      if (!canvas.isConnected) return;
      const fresh = !canvas.dataset.drawn;
      if (fresh) canvas.replaceChildren();
      const colours = palette();
      const data = coloured(figure, colours, width, canvas.clientHeight);
      const layout = themed(figure.layout, colours, width);
      colours.done();
      await Plotly.react(canvas, data, layout, CONFIG);
      if (fresh) listen(canvas);
      if (figure.layout.meta.days) canvas.dataset.drill = "day";
      canvas.dataset.drawn = "yes";
      // The window may have changed while Plotly was loaded.
      if (paperWidth === undefined && canvas.clientWidth !== width) draw(canvas);
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
    for (const part of document.querySelectorAll("[data-png], [data-chart-hint]")) {
      part.hidden = part.matches("[data-chart-hint]") && !mouse.matches;
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
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-png]");
    if (button) save(button);
  });
  document.addEventListener("themechange", () => redraw("[data-drawn=yes]"));
  window.addEventListener("resize", () => redraw("[data-drawn=yes]"));
  window.addEventListener("beforeprint", () => redraw("[data-chart]", PAPER_WIDTH));
  window.addEventListener("afterprint", () => redraw("[data-drawn=yes]"));
})();
