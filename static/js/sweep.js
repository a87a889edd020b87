// Throughput along an axis, read from the table beside each chart: page and chart cannot tell two things.
import { colours } from "./theme-colours.js";

const CONFIG = { displayModeBar: false, responsive: true };
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
// Plotly takes names as markup.
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** The lines of a table: name and provenance to their marks. */
function linesOf(table) {
  const lines = new Map();
  for (const { dataset } of table.querySelectorAll("tr[data-line]")) {
    const name = `${dataset.line} (${dataset.provenance})`;
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

function draw(place) {
  const table = document.getElementById(place.dataset.scaling);
  const ink = colours();
  const lines = linesOf(table);
  const values = [...new Set([...lines.values()].flatMap(({ x }) => x))].sort((a, b) => a - b);
  const traces = [...lines].map(([name, line], nth) => {
    const color = ink.palette[nth % ink.palette.length];
    return {
      type: "scatter",
      mode: "lines+markers",
      name: plain(name),
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
      line: { color, width: 2, dash: DASHES[Math.floor(nth / ink.palette.length) % DASHES.length] },
      marker: { color, size: 8, symbol: SYMBOLS[nth % SYMBOLS.length] },
      hovertemplate: "%{y:,.1f}",
    };
  });
  // Doubled values stand evenly apart where they span more than three doublings.
  const doubled = values.length > 2 && values[0] > 0 && values.at(-1) / values[0] >= 8;
  Plotly.react(
    place,
    traces,
    {
      height: 320 + 20 * Math.max(0, lines.size - 2),
      margin: { l: 68, r: 16, t: 10, b: 48 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink.text, size: 12, family: ink.family },
      hovermode: "x unified",
      hoverlabel: { bgcolor: ink.ground, font: { color: ink.text } },
      legend: { orientation: "h", y: -0.24, yanchor: "top", traceorder: "normal" },
      showlegend: true,
      // Before there are marks an axis would show numbers that mean nothing.
      xaxis: {
        visible: lines.size > 0,
        title: { text: table.dataset.words, standoff: 6 },
        type: doubled ? "log" : "linear",
        tickvals: values,
        ticktext: values.map(String),
        fixedrange: true,
        gridcolor: ink.grid,
      },
      yaxis: {
        visible: lines.size > 0,
        title: { text: "samples/s" },
        rangemode: "tozero",
        gridcolor: ink.grid,
        fixedrange: true,
        nticks: 6,
      },
      annotations: lines.size
        ? []
        : [{ text: "No run has completed yet", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }],
    },
    CONFIG,
  );
}

function saveCsv(place) {
  const table = document.getElementById(place.dataset.scaling);
  const safe = (text) =>
    `"${(/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = [...table.querySelectorAll("tr[data-line]")].map(({ dataset }) =>
    [dataset.line, dataset.provenance, dataset.x, dataset.rate, dataset.low, dataset.high].map(safe).join(","),
  );
  const heads = ["line", "provenance", table.dataset.words, "samples_per_second", "low", "high"].map(safe).join(",");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${[heads, ...rows].join("\r\n")}\r\n`], { type: "text/csv" }));
  link.download = `${place.dataset.scaling}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

if (typeof Plotly !== "undefined") {
  for (const place of document.querySelectorAll("[data-scaling]")) {
    draw(place);
    new MutationObserver(() => draw(place)).observe(document.getElementById(place.dataset.scaling), {
      childList: true,
    });
    const figure = place.closest("figure");
    figure.querySelector('[data-save="csv"]').addEventListener("click", () => saveCsv(place));
    figure.querySelector('[data-save="png"]').addEventListener("click", () =>
      Plotly.downloadImage(place, {
        format: "png",
        scale: 2,
        width: 1000,
        height: 520,
        filename: place.dataset.scaling,
      }),
    );
    document.addEventListener("falconweb:theme", () => draw(place));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(place));
  }
}
