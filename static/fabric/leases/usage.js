// Hours by kind and month as stacked bars, read from the table beside it: page and chart cannot differ.
import { escapeMarkup } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { CONFIG, themeLayout } from "../../site/plotly.js";
import { colours, onThemeChange } from "../../site/theme-colours.js";

const PATTERNS = ["", "/", ".", "x", "-"]; // so that kinds differ by more than colour
const place = document.querySelector("[data-usage-chart]");
const table = document.getElementById(place?.dataset.usageChart ?? "");

/** The months, and for each kind its hours in them, summed over the tenants that are shown. */
function hoursOf(rows) {
  const months = [...table.tHead.rows[0].cells].slice(2, -1).map((cell) => cell.textContent.trim());
  const kinds = new Map();
  for (const row of rows) {
    const kind = row.querySelector("[data-kind]").textContent.trim();
    const hours = kinds.get(kind) ?? months.map(() => 0);
    for (const [month, cell] of [...row.querySelectorAll("[data-hours]")].entries()) {
      hours[month] += Number(cell.dataset.hours);
    }
    kinds.set(kind, hours);
  }
  return { months, kinds };
}

function draw() {
  const ink = colours();
  const { months, kinds } = hoursOf(table.tBodies[0].rows);
  const traces = [...kinds].map(([kind, hours], nth) => ({
    type: "bar",
    name: escapeMarkup(kind),
    x: months,
    y: hours,
    marker: { color: ink.palette[nth % ink.palette.length], pattern: { shape: PATTERNS[nth % PATTERNS.length] } },
    hovertemplate: "%{y:,.1f} h",
  }));
  const sums = months.map((_name, month) => [...kinds.values()].reduce((sum, hours) => sum + hours[month], 0));
  const layout = {
    ...themeLayout(ink, getComputedStyle(place.closest(".chart")).backgroundColor),
    barmode: "stack",
    height: 280,
    margin: { l: 64, r: 12, t: 8, b: 56 },
    hovermode: "x unified",
    legend: { orientation: "h", y: -0.18, traceorder: "normal" },
    showlegend: true,
    xaxis: { type: "category", fixedrange: true, automargin: true },
    yaxis: {
      title: { text: _("hours") },
      gridcolor: ink.grid,
      fixedrange: true,
      range: [0, Math.max(1, ...sums) * 1.05],
      nticks: 6,
    },
  };
  Plotly.react(place, traces, layout, CONFIG);
}

if (place && table && typeof Plotly !== "undefined") {
  draw();
  onThemeChange(draw);
}
