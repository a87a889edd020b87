// Figures of benchmarks: bars, points or lines with their intervals, drawn from the same data as the table below. Each
// is drawn when it scrolls into view; the library is loaded with the first.
import { element, svgElement } from "../../site/dom.js";
import { escapeMarkup } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { CLEAR, CONFIG, themeLayout } from "../../site/plotly.js";
import { colours, onPrint, onThemeChange } from "../../site/theme-colours.js";
import {
  barPositions,
  decades,
  formatDigits,
  GAP,
  LETTER,
  letterOf,
  MARGINS,
  tickLabels,
  wrapMarkup,
  wrapWords,
} from "./figure-layout.js";

const NARROWEST = 22; // px of a bar, before the chart becomes wider than its place
const HOVERED = 40; // letters a line of a name in a tooltip
const SIGN = 70; // px of a sign in the legend of a picture, with the room about it
const ROW = 20; // px of its line
const PNG = { format: "png", width: 1400, height: 720, scale: 2 };
const ASLANT = 240; // px more of its height where names stand aslant
// Marks of provenance besides the word: the filling of bars, the sign of points, the dashes of lines.
const STYLES = {
  measured: { pattern: "", symbol: "circle", dash: "solid" },
  simulated: { pattern: "/", symbol: "square", dash: "dash" },
  predicted: { pattern: ".", symbol: "circle-open", dash: "dot" },
  imported: { pattern: "x", symbol: "diamond", dash: "dashdot" },
  published: { pattern: "-", symbol: "triangle-up-open", dash: "longdash" },
};
const LABELS = {
  measured: _("measured"),
  simulated: _("simulated"),
  predicted: _("predicted"),
  imported: _("imported"),
  published: _("published"),
};
const DASHES = { solid: "none", dash: "5 3", dot: "1.5 3", dashdot: "6 2 1.5 2", longdash: "9 3" };
const SIGNS = {
  circle: "M11 3a4 4 0 1 1 0 8 4 4 0 1 1 0-8z",
  square: "M7 3h8v8H7z",
  diamond: "M11 2l5 5-5 5-5-5z",
  "circle-open": "M11 3a4 4 0 1 1 0 8 4 4 0 1 1 0-8z",
  "triangle-up-open": "M11 2.5l5 9H6z",
};
// The path of a pattern in a sample of the legend, and the width of its stroke.
const FILLINGS = {
  "": ["", 1],
  "/": ["M3 13L11 1M9 13L17 1M15 13L21 4", 1.5],
  x: ["M3 13L11 1M9 13L17 1M5 1L13 13M11 1L19 13", 1.2],
  ".": ["M5 5h2M11 5h2M17 5h1M5 9h2M11 9h2M17 9h1", 2],
  "-": ["M1 5h20M1 9h20", 1.2],
};
const charts = [];
let library = null;

/** The chart library, loaded once. */
function loadLibrary(address) {
  library ??= new Promise((resolve, reject) => {
    const script = element("script", { src: address });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", reject);
    document.head.append(script);
  });
  return library;
}

/** The name of a legend's entry: its group with its provenance. */
const interval = (low, high) => _("{low} to {high}", { low: formatDigits(low), high: formatDigits(high) });
const nameOf = ({ group, provenance }) => `${group} (${LABELS[provenance]})`;

class FigureChart {
  constructor(figure) {
    this.figure = figure;
    this.data = JSON.parse(document.getElementById(figure.dataset.figure).textContent);
    this.plot = figure.querySelector("[data-plot]");
    this.legend = figure.querySelector(".chart-legend");
    this.hidden = new Set();
    this.drawn = false;
    const own = this.data.kind === "lines" ? this.data.lines : this.data.marks;
    const keys = new Map(own.map((one) => [`${one.group}\n${one.provenance}`, one]));
    const groups = [...new Set(own.map((one) => one.group))];
    this.entries = [...keys].map(([key, { group, provenance }], nth) => ({
      key,
      group,
      provenance,
      colour: groups.indexOf(group),
      letter: letterOf(nth),
      style: STYLES[provenance],
    }));
    this.places = this.data.kind === "bars" ? [...new Set(this.data.marks.map(({ x }) => x))] : [];
    this.buildLegend();
    this.buildBoundsLegend();
    this.buildKey();
    this.paintLegend();
    if (matchMedia("(max-width: 700px)").matches) figure.querySelector("details").open = false; // it is long there
    const png = figure.querySelector("[data-png]");
    png.addEventListener("click", () => this.save());
  }

  buildLegend() {
    for (const entry of this.entries) {
      entry.sample = svgElement("svg", { viewBox: "0 0 22 14", "aria-hidden": "true" });
      const button = element(
        "button",
        { type: "button", className: "quiet small", title: _("Hide or show") },
        entry.sample,
        element("b", {}, entry.letter),
        element("span", {}, nameOf(entry)),
      );
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!this.hidden.delete(entry.key)) this.hidden.add(entry.key);
        button.setAttribute("aria-pressed", String(!this.hidden.has(entry.key)));
        this.draw();
      });
      this.legend.append(element("li", {}, button));
    }
  }

  /** Name the line of published limits. */
  buildBoundsLegend() {
    if (!this.data.bounds.length) return;
    const sample = svgElement(
      "svg",
      { viewBox: "0 0 22 14", "aria-hidden": "true" },
      svgElement("path", { d: "M0 7h22", stroke: "currentColor", "stroke-dasharray": DASHES.longdash }),
    );
    this.legend.append(element("li", { className: "chart-bound" }, sample, _("published limit")));
  }

  /** Build the list of what the numbers below the axis mean, shown where names are too long for it. */
  buildKey() {
    const items = this.places.map((one) => element("li", {}, one));
    this.key = element("ol", { className: "chart-places", hidden: true, ariaLabel: this.data.x.title }, ...items);
    this.legend.before(this.key);
  }

  /** Place the bars that are shown. */
  placeBars() {
    this.bars = barPositions(this.places, (place) =>
      this.entries
        .filter(({ key }) => !this.hidden.has(key) && this.marks(key).some(({ x }) => x === place))
        .map(({ key }) => key),
    );
  }

  /** Label the places below a chart of a width, px. */
  labelTicks(width, otherwise) {
    this.labels = tickLabels(this.bars, this.places, width, otherwise);
  }

  marks(key) {
    return this.data.marks.filter(({ group, provenance }) => `${group}\n${provenance}` === key);
  }

  /** Draw the samples of the legend, in the colours of the theme. */
  paintLegend() {
    const { palette } = colours();
    for (const { sample, colour, style } of this.entries) {
      const ink = palette[colour % palette.length];
      const path = (d, attributes) =>
        svgElement("path", { d, fill: "none", stroke: ink, "stroke-width": 2, ...attributes });
      if (this.data.kind === "bars") {
        const [d, width] = FILLINGS[style.pattern];
        const box = path("M1 1h20v12H1z", { fill: style.pattern ? "none" : ink, "stroke-width": 1.5 });
        sample.replaceChildren(box, path(d, { "stroke-width": width }));
      } else {
        const line = path("M0 7h22", { "stroke-dasharray": DASHES[style.dash] });
        const sign = path(SIGNS[style.symbol], { fill: style.symbol.endsWith("open") ? "none" : ink });
        sample.replaceChildren(line, ...(this.data.kind === "points" ? [sign] : []));
      }
    }
  }

  /** The traces: one for each group and provenance; never two provenances in one. */
  traces(ink) {
    const { data } = this;
    const several = this.entries.length > 1;
    const shown = this.entries.filter(({ key }) => !this.hidden.has(key));
    const traces = shown.map((entry, traceNumber) => {
      const { group, provenance, style } = entry;
      const colour = ink.palette[entry.colour % ink.palette.length];
      const name = escapeMarkup(`${several ? `${entry.letter}  ` : ""}${nameOf(entry)}`);
      const hovered = `%{y:.4~g} ${escapeMarkup(data.y.unit)}`;
      const base = { name, meta: entry.key, hoverlabel: { namelength: -1 } };
      if (data.kind === "lines") {
        const line = data.lines.find((one) => one.group === group && one.provenance === provenance);
        // Each letter at a point of its own: lines that coincide would hide each other's.
        const known = line.values.flatMap((value, at) => (value === null ? [] : [at]));
        const lettered = known[Math.floor((known.length * (traceNumber + 1)) / (shown.length + 1))];
        return {
          ...base,
          type: "scatter",
          mode: several ? "lines+text" : "lines",
          x: data.at,
          y: line.values,
          connectgaps: false,
          line: { color: colour, dash: style.dash, width: 2 },
          text: line.values.map((_value, at) => (at === lettered ? entry.letter : "")),
          textposition: "top center",
          textfont: { color: colour, weight: 700 },
          hovertemplate: hovered,
        };
      }
      const marks = this.marks(entry.key);
      const common = {
        ...base,
        x: marks.map(({ x }) => this.bars.at.get(`${entry.key}\n${x}`) ?? x),
        y: marks.map(({ value }) => value),
        error_y: {
          type: "data",
          symmetric: false,
          visible: marks.some(({ high }) => high !== null),
          color: ink.text,
          thickness: 1.25,
          width: 4,
          array: marks.map(({ value, high }) => (high === null ? 0 : high - value)),
          arrayminus: marks.map(({ value, low }) => (low === null ? 0 : value - low)),
        },
        customdata: marks.map(({ x, low, high, count }) => [
          low === null ? "" : `<br>${interval(low, high)}`,
          count ? `<br>${count} ${escapeMarkup(data.counts)}` : "",
          typeof x === "string" ? `${wrapMarkup(x, HOVERED)}<br>` : "",
        ]),
        hovertemplate: `%{customdata[2]}${hovered}%{customdata[0]}%{customdata[1]}<extra>${name}</extra>`,
      };
      if (data.kind === "points") {
        return {
          ...common,
          type: "scatter",
          mode: "lines+markers",
          line: { color: colour, dash: style.dash, width: 2 },
          marker: { color: colour, symbol: style.symbol, size: 9, line: { color: colour, width: 2 } },
        };
      }
      return {
        ...common,
        type: "bar",
        width: this.labels.barWidth,
        marker: {
          color: colour,
          line: { color: colour, width: 1 },
          pattern: {
            shape: style.pattern,
            fillmode: "replace",
            fgcolor: colour,
            bgcolor: CLEAR,
            size: 8,
            solidity: style.pattern === "." ? 0.25 : 0.35,
          },
        },
        text: several ? marks.map(() => entry.letter) : undefined,
        textposition: "inside",
        insidetextanchor: "start",
        textangle: 0,
        insidetextfont: {
          color: style.pattern ? ink.text : ink.card,
          weight: 700,
          shadow: style.pattern ? "auto" : "none",
        },
      };
    });
    return [...traces, ...this.ideals(shown, ink), ...this.bounds(ink)];
  }

  /** Published limits, each over the bars of its place: { x0, x1, value, words }. */
  shownBounds() {
    const shown = this.entries.filter(({ key }) => !this.hidden.has(key));
    return this.data.bounds.flatMap(({ x, relation, value, group }) => {
      const places = shown.map(({ key }) => this.bars.at.get(`${key}\n${x}`)).filter((at) => at !== undefined);
      if (!places.length) return [];
      const words = escapeMarkup(`${group} ${relation} ${formatDigits(value)}`.trim());
      return { x, x0: Math.min(...places) - 0.5, x1: Math.max(...places) + 0.5, value, words };
    });
  }

  bounds(ink) {
    return this.shownBounds().map(({ x, x0, x1, value, words }) => ({
      type: "scatter",
      mode: "lines",
      name: LABELS.published,
      x: [x0, x1],
      y: [value, value],
      line: { color: ink.text, dash: "9px,3px", width: 2 },
      hovertemplate: `${wrapMarkup(x, HOVERED)}<br>${LABELS.published}: ${words}<extra></extra>`,
      showlegend: false,
    }));
  }

  /** Lines of results in proportion: not of runs, so without signs and intervals. */
  ideals(shown, ink) {
    const proportion = _("in proportion");
    return shown.flatMap(({ group, provenance, colour, letter }) => {
      const marks = this.data.ideals.filter((one) => one.group === group && one.provenance === provenance);
      if (marks.length < 2) return [];
      return {
        type: "scatter",
        mode: "lines",
        name: `${letter}  ${proportion}`,
        x: marks.map(({ x }) => x),
        y: marks.map(({ value }) => value),
        line: { color: ink.palette[colour % ink.palette.length], dash: "1px,4px", width: 1.5 },
        opacity: 0.8,
        hovertemplate: `%{y:.4~g} ${proportion}<extra></extra>`,
        showlegend: false,
      };
    });
  }

  layout(ink, width) {
    const { data } = this;
    const axis = (one) => ({
      title: { text: escapeMarkup(one.unit ? `${one.title} (${one.unit})` : one.title), standoff: 12 },
      automargin: true,
      fixedrange: true,
      gridcolor: ink.grid,
      zerolinecolor: ink.grid,
      type: one.kind === "log" ? "log" : "linear",
    });
    const numbers = [...new Set(data.marks.map(({ x }) => x))].sort((one, other) => one - other);
    const y = axis(data.y);
    if (y.type === "linear" && data.kind !== "lines") y.rangemode = "tozero";
    if (y.type === "log") y.tickvals = decades([...data.marks, ...data.ideals].map(({ value }) => value));
    if (data.y.unit === "%") y.range = [0, 105];
    const x = axis(data.x);
    if (data.kind === "bars") {
      Object.assign(x, {
        type: "linear",
        showgrid: false,
        zeroline: false,
        range: [-GAP / 2, this.bars.end + GAP / 2],
        tickangle: this.labels.style === "aslant" ? -45 : 0,
        tickvals: this.bars.ticks.map(({ at }) => at),
        ticktext: this.labels.labels,
      });
    }
    if (data.kind === "points") Object.assign(x, { tickvals: numbers, ticktext: numbers.map(formatDigits) });
    const baseline = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1 };
    return {
      ...themeLayout(ink, ink.card),
      barmode: "overlay",
      height: width < 500 ? 320 : 380,
      margin: { l: 64, r: 24, t: 12, b: 56 },
      hovermode: data.kind === "lines" ? "x unified" : "closest",
      showlegend: false,
      xaxis: x,
      yaxis: y,
      uniformtext: { minsize: 9, mode: "hide" },
      annotations: this.shownBounds().map(({ x1, value, words }) => ({
        x: x1,
        y: value,
        text: words,
        showarrow: false,
        xanchor: "right",
        yanchor: "bottom",
        bgcolor: ink.card,
        opacity: 0.9,
        font: { color: ink.text },
      })),
      shapes: data.baseline ? [{ ...baseline, line: { color: ink.text, width: 1, dash: "dot" } }] : [],
    };
  }

  ink() {
    return { ...colours(), card: getComputedStyle(this.figure.closest(".card")).backgroundColor };
  }

  draw() {
    if (!window.Plotly) return;
    const ink = this.ink();
    const width = this.plot.parentElement.clientWidth;
    this.placeBars();
    const least = this.data.kind === "bars" ? Math.ceil((this.bars.end + GAP) * NARROWEST) + MARGINS : 0;
    // The width first: the library measures its place.
    this.plot.style.minWidth = least > width ? `${least}px` : "";
    this.labelTicks(Math.max(width, least), "numbers");
    this.key.hidden = this.labels.style !== "numbers";
    this.paintLegend();
    const layout = this.layout(ink, width);
    window.Plotly.react(this.plot, this.traces(ink), layout, CONFIG);
    this.drawn = true;
    this.figure.querySelector("[data-png]").disabled = false;
    this.plot.dataset.drawn = this.entries.length - this.hidden.size;
  }

  /** Save it as a picture, with its title, its legend and its provenances. */
  async save() {
    const ink = this.ink();
    const { title, provenances } = this.data;
    const longest = Math.max(...this.entries.map((one) => nameOf(one).length));
    const beside = SIGN + LETTER * Math.min(longest, HOVERED);
    this.labelTicks(PNG.width - beside, "aslant");
    const data = this.traces(ink).map((trace) => ({
      showlegend: true,
      ...trace,
      name: wrapWords(trace.name, HOVERED).join("<br>"),
    }));
    const height = Math.max(
      PNG.height + (this.labels.style === "aslant" ? ASLANT : 0),
      this.entries.length * Math.ceil(longest / HOVERED) * ROW + 2 * MARGINS,
    );
    const layout = {
      ...this.layout(ink, PNG.width),
      width: PNG.width,
      height,
      showlegend: true,
      paper_bgcolor: ink.card,
      plot_bgcolor: ink.card,
      margin: { l: 80, r: 40, t: 70, b: 60 },
      // Without markup: that would add inline styles, which the site's policy refuses.
      title: {
        text: `${escapeMarkup(title)} (${provenances.map((one) => LABELS[one]).join(", ")})`,
        font: { size: 18 },
      },
    };
    const address = await window.Plotly.toImage({ data, layout }, { ...PNG, height });
    element("a", { href: address, download: `${this.data.name}.png` }).click();
    this.draw(); // the layout of the page again
  }
}

const visibilityObserver = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      visibilityObserver.unobserve(target);
      const chart = charts.find(({ figure }) => figure === target);
      const failure = _("The chart library could not be loaded. Load the page again; the table has all of it.");
      loadLibrary(target.dataset.library).then(
        () => chart.draw(),
        () => chart.plot.replaceChildren(failure),
      );
    }
  },
  { rootMargin: "300px" },
);

/** Show the figures of a part of the page, which came with it or later. */
export function showFigures(part) {
  for (const figure of part.querySelectorAll("[data-figure]")) {
    charts.push(new FigureChart(figure));
    visibilityObserver.observe(figure);
  }
}

showFigures(document);

function redraw() {
  for (const chart of charts) if (chart.drawn) chart.draw();
}

onThemeChange(redraw);
let width = innerWidth;
addEventListener("resize", () => {
  if (width === innerWidth) return;
  width = innerWidth;
  redraw();
});
// Print all charts, also those that were never in view.
onPrint(() => {
  for (const chart of charts) chart.draw();
}, redraw);
