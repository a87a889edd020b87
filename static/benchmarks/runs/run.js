// A run in progress: its charts and its log follow, its status is read aloud, its seconds are counted.
import { element } from "../../site/dom.js";
import { escapeMarkup } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { CONFIG, themeLayout } from "../../site/plotly.js";
import { announce, showElapsed } from "../../site/progress.js";
import { colours, onThemeChange } from "../../site/theme-colours.js";
import { chartKeys, displayUnit, seriesName } from "./run-series.js";

const EVERY = 1000; // ms
const POINTS = 600; // of a line
const LETTER = 6.6; // px of a letter in a legend, about
const LEGEND_SIGN = 46; // px of the line before it, and of the space after it
const DASHES = ["solid", "dash", "dot", "dashdot"];
const place = document.querySelector("[data-series]");
const log = document.getElementById("run-log");
const pause = document.querySelector("[data-log-pause]");
const facts = () => document.querySelector("[data-run-state]");
const isOpen = () => !["completed", "failed", "cancelled"].includes(facts()?.dataset.runState);
const gpuNames = () => JSON.parse(facts()?.dataset.gpus || "{}");
const drawn = new Map(); // figure -> its series
let paused = false;
let counts = "";
let first = Infinity; // all charts count from the same moment

async function fetchJson(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

function draw(figure, series) {
  const ink = colours();
  const { unit, title } = figure.dataset;
  const gpus = gpuNames();
  const most = Math.max(0, ...series.flatMap(({ values }) => values.map((one) => Math.abs(one ?? 0))));
  const [size, unitName] = displayUnit(unit, most);
  const names = series.map(({ key }) => seriesName(key, figure.dataset, gpus));
  const widest = LEGEND_SIGN + LETTER * Math.max(0, ...names.map((one) => one.length));
  // A device is named even where it is the only one.
  const isNamed = series.length > 1 || Boolean(series[0]?.key.startsWith("gpu/"));
  const columns = Math.max(1, Math.floor((figure.clientWidth - 72) / widest));
  const legendRows = isNamed ? Math.ceil(series.length / columns) : 0;
  const traces = series.map(({ at, values }, nth) => ({
    type: "scatter",
    mode: at.length < 3 ? "markers" : "lines",
    name: escapeMarkup(names[nth]),
    x: at.map((one) => one - first),
    y: values.map((one) => (one === null ? null : one / size)),
    line: {
      color: ink.palette[nth % ink.palette.length],
      width: 1.5,
      dash: DASHES[Math.floor(nth / ink.palette.length) % DASHES.length],
    },
    hovertemplate: `%{y:.4~g} ${unitName}`,
  }));
  const axis = { gridcolor: ink.grid, fixedrange: true, rangemode: "tozero" };
  const layout = {
    ...themeLayout(ink),
    height: 260 + 19 * legendRows,
    margin: { l: 60, r: 12, t: 8, b: 44 },
    showlegend: isNamed,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    hovermode: "x unified",
    xaxis: { ...axis, title: { text: _("seconds since the first value") } },
    yaxis: { ...axis, title: { text: unitName || title.toLowerCase() } },
  };
  Plotly.react(figure.querySelector("[data-plot]"), traces, layout, CONFIG);
  const rows = series.map(({ key, values, count }, nth) => {
    const newest = values.findLast((one) => one !== null);
    const value = newest === undefined ? "" : `${Number((newest / size).toPrecision(4))} ${unitName}`;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, names[nth]),
      element("td", { className: "words" }, key),
      element("td", { className: "number" }, value),
      element("td", { className: "number" }, String(count)),
    );
  });
  figure.querySelector("tbody").replaceChildren(...rows);
}

const resizeObserver = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = target.querySelector("[data-plot]");
    if (plot.data) Plotly.Plots.resize(plot);
  }
});

async function updateCharts() {
  if (!place || typeof Plotly === "undefined") return;
  const known = await fetchJson(place.dataset.series);
  const now = JSON.stringify(known.map(({ key, count }) => [key, count]));
  if (now === counts) return;
  counts = now;
  const keysOfRun = known.map(({ key }) => key);
  const gpus = gpuNames();
  const figures = [...place.querySelectorAll("[data-run-chart]")];
  const shown = figures
    .map((figure) => ({ figure, ...chartKeys(keysOfRun, figure.dataset, gpus) }))
    .filter(({ keys }) => keys.length > 0);
  // All together: each further one makes the others narrower.
  for (const { figure } of shown) figure.hidden = false;
  for (const { figure, keys, all } of shown) {
    const more = figure.querySelector("[data-not-shown]");
    more.hidden = all <= keys.length;
    more.textContent = _("{shown} of {all} series are drawn; the CSV of all series has the others.", {
      shown: keys.length,
      all,
    });
    const query = keys.map((key) => `key=${encodeURIComponent(key)}`).join("&");
    figure.querySelector("[data-csv]").href = `${place.dataset.csv}?${query}`;
    const series = await fetchJson(`${place.dataset.series}?${query}&points=${POINTS}`);
    drawn.set(
      figure,
      series.filter(({ at }) => at.length),
    );
    first = Math.min(first, ...drawn.get(figure).map(({ at }) => at[0]));
  }
  redraw();
  for (const { figure } of shown) resizeObserver.observe(figure);
  document.querySelector("[data-no-series]").hidden = figures.some((one) => !one.hidden);
}

function redraw() {
  for (const [figure, series] of drawn) if (series.length > 0) draw(figure, series);
}

async function updateLog() {
  if (!log || paused) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  for (let more = true; more; ) {
    const piece = await fetchJson(`${log.dataset.log}?first=${log.dataset.next}`);
    if (piece.text) log.append(piece.text);
    log.dataset.next = piece.next;
    more = piece.more;
  }
  document.querySelector("[data-log-empty]").hidden = log.textContent !== "";
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function update() {
  const open = isOpen();
  if (pause) pause.hidden = !open;
  if (!document.hidden) await Promise.all([updateCharts().catch(() => {}), updateLog().catch(() => {})]);
  // Once more after the end, for the last data.
  if (open) setTimeout(update, EVERY);
}

pause?.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? _("Follow") : _("Pause");
  pause.setAttribute("aria-pressed", String(paused));
  if (!paused) updateLog().catch(() => {});
});
onThemeChange(redraw);
document.addEventListener("falconweb:refreshed", () => {
  announce(document.getElementById("run-status"), facts()?.dataset.status, facts()?.dataset.runState);
});
setInterval(() => isOpen() && showElapsed(), 1000);
if (log) log.scrollTop = log.scrollHeight;
update();
