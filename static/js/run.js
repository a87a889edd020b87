// A run while it goes: charts and log follow, what is new is said, seconds are counted.
import { colours, forgetColours } from "./theme-colours.js";

const EVERY = 1000; // ms
const POINTS = 600; // of a line
const SAY_EVERY = 5000; // ms: more would flood a screen reader
const MOST_LINES = 16;
const LETTER = 6.6; // px of a letter in a legend, about
const LEGEND_SIGN = 46; // px of the line before it, and of the space after it
const DASHES = ["solid", "dash", "dot", "dashdot"];
const CONFIG = { displayModeBar: false, responsive: true };
const place = document.querySelector("[data-series]");
const log = document.getElementById("run-log");
const pause = document.querySelector("[data-log-pause]");
const facts = () => document.querySelector("[data-run-state]");
const isOpen = () => !["completed", "failed", "cancelled"].includes(facts()?.dataset.runState);
let saidAt = 0;
let loaded = performance.now();
let paused = false;
let counts = "";
let first = Infinity; // all charts count from the same moment

const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const SCALES = {
  s: [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
  ],
  "B/s": [
    [1e9, "GB/s"],
    [1e6, "MB/s"],
    [1e3, "kB/s"],
  ],
  share: [[0.01, "%"]],
};

const PHASES = { warmup: "warm-up", timed: "timed steps", no_sync: "without exchange" };

/** How a line is called where the chart tells the rest: 'timed steps', 'own GPU 1', 'falcon-1 drawer 1 slot 3 · V100, from it'. */
function nameOf(key, { begins, ends }) {
  const [first, address, last] = key.split("/");
  if (first === "gpu" && last) {
    const name = JSON.parse(facts()?.dataset.gpus || "{}")[address] ?? `GPU at ${address}`;
    return ends.startsWith("/pcie") ? `${name}, ${last.endsWith("from") ? "from it" : "to it"}` : name;
  }
  const rest = key.slice(begins.length).replace(ends, "");
  return PHASES[rest] ?? (rest || key);
}

const isOwn = (key, figure) => nameOf(key, figure.dataset).startsWith("own ");

/** In what values of a unit are shown. */
function scaled(unit, most) {
  const scales = SCALES[unit] ?? [[1, unit]];
  return scales.find(([size]) => Math.abs(most) >= size) ?? scales.at(-1);
}

async function read(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

function chartsOf(series) {
  return [...place.querySelectorAll("[data-run-chart]")].map((figure) => {
    const { begins, ends } = figure.dataset;
    const fits = ({ key }) =>
      key.startsWith(begins) && (key.endsWith(ends) || key.slice(0, key.lastIndexOf("_") + 1).endsWith(ends));
    const keys = series.filter(fits).map(({ key }) => key);
    // Where not all can be drawn, what is composed comes before what is always there.
    if (keys.length > MOST_LINES) keys.sort((key, other) => isOwn(key, figure) - isOwn(other, figure));
    return { figure, keys: keys.slice(0, MOST_LINES), all: keys.length };
  });
}

function draw(figure, series) {
  const ink = colours();
  const { unit, title } = figure.dataset;
  const most = Math.max(0, ...series.flatMap(({ values }) => values.map((one) => Math.abs(one ?? 0))));
  const [size, name] = scaled(unit, most);
  const names = series.map(({ key }) => nameOf(key, figure.dataset));
  const widest = LEGEND_SIGN + LETTER * Math.max(0, ...names.map((one) => one.length));
  // A device is named even where it is the only one.
  const isNamed = series.length > 1 || Boolean(series[0]?.key.startsWith("gpu/"));
  const legendRows = isNamed
    ? Math.ceil(series.length / Math.max(1, Math.floor((figure.clientWidth - 72) / widest)))
    : 0;
  const traces = series.map(({ at, values }, nth) => ({
    type: "scatter",
    mode: at.length < 3 ? "markers" : "lines",
    name: plain(names[nth]),
    x: at.map((one) => one - first),
    y: values.map((one) => (one === null ? null : one / size)),
    line: {
      color: ink.palette[nth % ink.palette.length],
      width: 1.5,
      dash: DASHES[Math.floor(nth / ink.palette.length) % DASHES.length],
    },
    hovertemplate: `%{y:.4~g} ${name}`,
  }));
  const layout = {
    height: 260 + 19 * legendRows,
    margin: { l: 60, r: 12, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink.text, size: 12, family: ink.family },
    showlegend: isNamed,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    hovermode: "x unified",
    hoverlabel: { bgcolor: ink.ground, font: { color: ink.text } },
    xaxis: {
      title: { text: "seconds since the first value" },
      gridcolor: ink.grid,
      fixedrange: true,
      rangemode: "tozero",
    },
    yaxis: {
      title: { text: name || title.toLowerCase() },
      gridcolor: ink.grid,
      fixedrange: true,
      rangemode: "tozero",
    },
  };
  Plotly.react(figure.querySelector("[data-plot]"), traces, layout, CONFIG);
  figure.querySelector("tbody").replaceChildren(
    ...series.map(({ key, values, count }, nth) => {
      const row = document.createElement("tr");
      const newest = values.findLast((one) => one !== null);
      const cells = [
        names[nth],
        key,
        newest === undefined ? "" : `${Number((newest / size).toPrecision(4))} ${name}`,
        String(count),
      ];
      row.append(
        ...cells.map((text, column) => {
          const cell = Object.assign(document.createElement(column ? "td" : "th"), { textContent: text });
          if (column > 1) cell.className = "number";
          else if (column) cell.className = "words";
          else cell.scope = "row";
          return cell;
        }),
      );
      return row;
    }),
  );
}

const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = target.querySelector("[data-plot]");
    if (plot.data) Plotly.Plots.resize(plot);
  }
});

async function charts() {
  if (!place || typeof Plotly === "undefined") return;
  const known = await read(place.dataset.series);
  const now = JSON.stringify(known.map(({ key, count }) => [key, count]));
  if (now === counts) return;
  counts = now;
  const shown = chartsOf(known).filter(({ keys }) => keys.length);
  // All at once: with each that comes, the others become narrower.
  for (const { figure } of shown) figure.hidden = false;
  for (const { figure, keys, all } of shown) {
    const more = figure.querySelector("[data-not-shown]");
    more.hidden = all <= keys.length;
    more.textContent = `${keys.length} of ${all} series are drawn; the CSV of all series has the others.`;
    const query = keys.map((key) => `key=${encodeURIComponent(key)}`).join("&");
    figure.querySelector("[data-csv]").href = `${place.dataset.csv}?${query}`;
    const series = await read(`${place.dataset.series}?${query}&points=${POINTS}`);
    figure.data_ = series.filter(({ at }) => at.length);
    first = Math.min(first, ...figure.data_.map(({ at }) => at[0]));
  }
  for (const { figure } of shown) {
    if (figure.data_.length) draw(figure, figure.data_);
    widths.observe(figure);
  }
  document.querySelector("[data-no-series]").hidden = [...place.querySelectorAll("[data-run-chart]")].some(
    (one) => !one.hidden,
  );
}

async function follow() {
  if (!log || paused) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  for (let more = true; more; ) {
    const piece = await read(`${log.dataset.log}?first=${log.dataset.next}`);
    if (piece.text) log.append(piece.text);
    log.dataset.next = piece.next;
    more = piece.more;
  }
  document.querySelector("[data-log-empty]").hidden = log.textContent !== "";
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function say() {
  const words = facts()?.dataset.said;
  const where = document.getElementById("run-said");
  if (!words || where.textContent === words) return;
  const state = facts().dataset.runState;
  if (Date.now() - saidAt < SAY_EVERY && where.dataset.state === state) return;
  saidAt = Date.now();
  where.dataset.state = state;
  where.textContent = words;
}

async function tick() {
  const open = isOpen();
  if (pause) pause.hidden = !open;
  if (!document.hidden) await Promise.all([charts().catch(() => {}), follow().catch(() => {})]);
  // One last look after the end brings what came with it.
  if (open) setTimeout(tick, EVERY);
}

pause?.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Follow" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  if (!paused) follow().catch(() => {});
});
function redraw() {
  forgetColours();
  for (const figure of document.querySelectorAll("[data-run-chart]:not([hidden])")) draw(figure, figure.data_);
}
document.addEventListener("falconweb:theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("falconweb:refreshed", () => {
  loaded = performance.now();
  say();
});
setInterval(() => {
  const where = document.querySelector("[data-seconds]");
  if (where && isOpen())
    where.textContent = `${Math.round(Number(where.dataset.seconds) + (performance.now() - loaded) / 1000)} s so far`;
}, 1000);
if (log) log.scrollTop = log.scrollHeight;
tick();
