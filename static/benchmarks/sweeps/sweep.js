// Throughput along an axis, read from the table beside each chart: page and chart cannot differ.
import { csvCell, saveCsv } from "../../site/csv.js";
import { escapeMarkup } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { CONFIG, themeLayout } from "../../site/plotly.js";
import { colours, onThemeChange } from "../../site/theme-colours.js";

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const EMPTY = { text: _("No run has completed yet"), showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 };

/** The lines of a table: name and provenance to their marks. */
function linesOf(table) {
  const lines = new Map();
  for (const { dataset } of table.querySelectorAll("tr[data-line]")) {
    const name = dataset.shown;
    const line = lines.get(name) ?? { x: [], y: [], over: [], under: [] };
    const [rate, low, high] = [dataset.rate, dataset.low, dataset.high].map(Number);
    line.x.push(Number(dataset.x));
    line.y.push(rate);
    line.over.push(high - rate);
    line.under.push(rate - low);
    lines.set(name, line);
  }
  return lines;
}

function traceOf([name, line], nth, palette) {
  const color = palette[nth % palette.length];
  return {
    type: "scatter",
    mode: "lines+markers",
    name: escapeMarkup(name),
    x: line.x,
    y: line.y,
    error_y: {
      type: "data",
      symmetric: false,
      array: line.over,
      arrayminus: line.under,
      thickness: 1.5,
      width: 4,
      color,
    },
    line: { color, width: 2, dash: DASHES[Math.floor(nth / palette.length) % DASHES.length] },
    marker: { color, size: 8, symbol: SYMBOLS[nth % SYMBOLS.length] },
    hovertemplate: "%{y:,.1f}",
  };
}

function draw(place) {
  const table = document.getElementById(place.dataset.scaling);
  const ink = colours();
  const lines = linesOf(table);
  const values = [...new Set([...lines.values()].flatMap(({ x }) => x))].sort((a, b) => a - b);
  // Values are evenly spaced by doubling where they span more than three doublings.
  const isLog = values.length > 2 && values[0] > 0 && values.at(-1) / values[0] >= 8;
  // Without marks an axis would show meaningless numbers.
  const axis = { visible: lines.size > 0, fixedrange: true, gridcolor: ink.grid };
  const layout = {
    ...themeLayout(ink),
    height: 320 + 20 * Math.max(0, lines.size - 2),
    margin: { l: 68, r: 16, t: 10, b: 48 },
    hovermode: "x unified",
    legend: { orientation: "h", y: -0.24, yanchor: "top", traceorder: "normal" },
    showlegend: true,
    xaxis: {
      ...axis,
      title: { text: table.dataset.words, standoff: 6 },
      type: isLog ? "log" : "linear",
      tickvals: values,
      ticktext: values.map(String),
    },
    yaxis: { ...axis, title: { text: _("samples/s") }, rangemode: "tozero", nticks: 6 },
    annotations: lines.size ? [] : [EMPTY],
  };
  const traces = [...lines].map((line, nth) => traceOf(line, nth, ink.palette));
  Plotly.react(place, traces, layout, CONFIG);
}

function saveTable(place) {
  const table = document.getElementById(place.dataset.scaling);
  const rows = [...table.querySelectorAll("tr[data-line]")].map(({ dataset }) =>
    [dataset.line, dataset.provenance, dataset.x, dataset.rate, dataset.low, dataset.high].map(csvCell),
  );
  const names = ["line", "provenance", table.dataset.column, "samples_per_second", "low", "high"].map(csvCell);
  saveCsv([names, ...rows], `${place.dataset.scaling}.csv`);
}

if (typeof Plotly !== "undefined") {
  for (const place of document.querySelectorAll("[data-scaling]")) {
    draw(place);
    new MutationObserver(() => draw(place)).observe(document.getElementById(place.dataset.scaling), {
      childList: true,
    });
    const figure = place.closest("figure");
    figure.querySelector('[data-save="csv"]').addEventListener("click", () => saveTable(place));
    const filename = place.dataset.scaling;
    const picture = { format: "png", scale: 2, width: 1000, height: 520, filename };
    figure.querySelector('[data-save="png"]').addEventListener("click", () => Plotly.downloadImage(place, picture));
    onThemeChange(() => draw(place));
  }
}
