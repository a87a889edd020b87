// Charts of the last ten minutes, one module around Plotly: create, append, destroy. A section with data-charts and
// data-chart-objects="device/3 port/5" gets a chart for each group of its series; the server fills in what was missed.
import { newest } from "./live.js";
import { format } from "./show.js";

const SECONDS = 600;
const GAP = 2.5; // s without a frame that are drawn as a gap
const MOST_CHARTS = 8;
const MOST_TRACES = 16;
const DASHES = ["solid", "dot", "dash", "dashdot"];
const GROUPS = [
  { title: "Port traffic", unit: "GB/s", scale: 1e-9, of: (s) => s.unit === "B/s" },
  { title: "Utilisation", unit: "%", top: 100, of: (s) => s.quantity === "utilisation_percent" },
  { title: "Temperature", unit: "°C", of: (s) => s.unit === "°C" },
  { title: "Power", unit: "W", of: (s) => s.unit === "W" },
  { title: "Fan speed", unit: "rpm", of: (s) => s.unit === "rpm" },
  { title: "Fan speed", unit: "%", top: 100, of: (s) => s.quantity === "fan_percent" },
  { title: "Link width", unit: "lanes", top: 17, ticks: [0, 4, 8, 16], of: (s) => s.unit === "lanes" },
  { title: "Voltage", unit: "V", of: (s) => s.unit === "V" },
];
// Names come from a BMC, and Plotly takes them as markup.
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const CONFIG = { displayModeBar: false, responsive: true };
const charts = new Set();

class Chart {
  constructor(section, chassis, group, series, names) {
    this.chassis = chassis;
    this.group = group;
    this.series = series.slice(0, MOST_TRACES);
    this.names = names;
    this.styles = stylesOf(this.series);
    this.hidden = this.series.map(() => false);
    this.at = [];
    this.values = this.series.map(() => []);
    this.visible = false;
    this.paused = false;
    this.top = 0;
    this.figure = document.getElementById("chart-template").content.firstElementChild.cloneNode(true);
    this.place = this.figure.querySelector("[data-plot]");
    const left = series.length - this.series.length;
    this.figure.querySelector("figcaption").textContent =
      `${group.title}, ${group.unit}${left ? ` (${this.series.length} of ${series.length})` : ""}`;
    this.legend = this.figure.querySelector(".chart-legend");
    this.legend.append(...names.slice(0, MOST_TRACES).map((name, place) => this.entry(name, place)));
    this.place.setAttribute("aria-label", `${group.title} of the last ten minutes`);
    this.figure.querySelector("[data-pause]").addEventListener("click", ({ target }) => this.pause(target));
    this.figure.querySelector("[data-csv]").addEventListener("click", () => this.download());
    this.details = this.figure.querySelector("details");
    this.details.addEventListener("toggle", () => this.table());
    section.append(this.figure);
    watcher.observe(this.figure);
    charts.add(this);
  }

  /** A line of the legend: it hides and shows its trace, and says the newest value. */
  entry(name, place) {
    const line = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet small" });
    button.setAttribute("aria-pressed", "true");
    button.title = "Hide or show";
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sample.setAttribute("viewBox", "0 0 24 4");
    sample.setAttribute("aria-hidden", "true");
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
    stroke.setAttribute("d", "M0 2h24");
    stroke.setAttribute("stroke-dasharray", { solid: "none", dot: "3 3", dash: "8 4", dashdot: "8 3 3 3" }[this.styles[place].dash]);
    sample.append(stroke);
    const value = Object.assign(document.createElement("output"), { textContent: "" });
    button.append(sample, Object.assign(document.createElement("span"), { textContent: name }), value);
    button.addEventListener("click", () => {
      this.hidden[place] = !this.hidden[place];
      button.setAttribute("aria-pressed", String(!this.hidden[place]));
      this.draw();
    });
    line.append(button);
    return line;
  }

  async backfill() {
    const keys = this.series.map((one) => one.key).join(",");
    const answer = await fetch(`/api/v1/chassis/${this.chassis}/readings/?keys=${encodeURIComponent(keys)}`);
    if (!answer.ok) return;
    const recent = await answer.json();
    this.at = recent.at;
    this.values = this.series.map(({ key }) => recent.values[key]);
    this.draw();
  }

  append(frame) {
    if (frame.at <= (this.at.at(-1) ?? 0)) return;
    this.at.push(frame.at);
    this.series.forEach(({ key }, place) => {
      const value = frame.value(key);
      this.values[place].push(Number.isFinite(value) ? value : null);
    });
    while (this.at.length && this.at[0] < frame.at - SECONDS) {
      this.at.shift();
      for (const values of this.values) values.shift();
    }
    if (this.visible && !this.paused && !document.hidden) this.draw();
  }

  /** Times and values for Plotly: scaled, and broken where frames are missing. */
  trace(place) {
    const x = [];
    const y = [];
    const scale = this.group.scale ?? 1;
    this.at.forEach((at, i) => {
      if (i && at - this.at[i - 1] > GAP) {
        x.push((at + this.at[i - 1]) * 500);
        y.push(null);
      }
      x.push(at * 1000); // a number is UTC to Plotly, a Date would be the browser's own time
      const value = this.values[place][i];
      y.push(value === null ? null : value * scale);
    });
    return { x, y };
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const ink = getComputedStyle(document.body).color;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches
      ? document.documentElement.dataset.theme !== "light" : document.documentElement.dataset.theme === "dark";
    const palette = colour(dark ? "--chart-dark" : "--chart-light").split(/\s*,\s*/);
    const traces = this.series.map((one, place) => ({
      ...this.trace(place),
      name: plain(this.names[place]),
      mode: "lines",
      connectgaps: false,
      visible: !this.hidden[place],
      line: { width: 1.75, color: palette[this.styles[place].colour % palette.length], dash: this.styles[place].dash },
      hovertemplate: `%{y:.${this.group.scale ? 2 : 1}f} ${this.group.unit}`,
    }));
    const now = this.at.at(-1) ?? Date.now() / 1000;
    const layout = {
      height: 220,
      margin: { l: 48, r: 12, t: 8, b: 24 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 12, family: getComputedStyle(document.body).fontFamily },
      hovermode: "x unified",
      hoverlabel: { bgcolor: getComputedStyle(this.figure).backgroundColor, font: { color: ink } },
      showlegend: false,
      xaxis: {
        type: "date", range: [(now - SECONDS) * 1000, now * 1000], gridcolor: "rgba(128,128,128,.25)", nticks: 6,
        tickformat: "%H:%M", hoverformat: "%H:%M:%S UTC", fixedrange: true,
      },
      yaxis: {
        range: [0, this.stepped(traces)], gridcolor: "rgba(128,128,128,.25)", fixedrange: true, nticks: 5,
        tickvals: this.group.ticks,
      },
    };
    Plotly.react(this.place, traces, layout, CONFIG);
    if (!this.listening) {
      this.listening = true;
      this.place.on("plotly_hover", ({ xvals }) => mark(this, xvals[0]));
      this.place.on("plotly_unhover", () => mark(this, null));
    }
    this.describe(palette);
    if (this.details.open) this.table();
  }

  /** The upper end of the y-axis in steps of 1, 2, 5 x 10^n, so that it does not breathe with each value. */
  stepped(traces) {
    if (this.group.top) return this.group.top;
    const most = Math.max(0, ...traces.flatMap(({ y }) => y.filter((value) => value !== null)));
    if (most <= 0) return 1;
    const magnitude = 10 ** Math.floor(Math.log10(most));
    return [1, 2, 5, 10].map((one) => one * magnitude).find((one) => one >= most * 1.05) ?? 20 * magnitude;
  }

  describe(palette) {
    const now = this.series.map((one, place) => format(this.values[place].at(-1) ?? NaN, one.unit));
    [...this.legend.children].forEach((line, place) => {
      line.querySelector("output").textContent = now[place];
      line.querySelector("path").setAttribute("stroke", palette[this.styles[place].colour % palette.length]);
    });
    const last = now.map((value, place) => `${this.names[place]} ${value}`);
    this.place.setAttribute("aria-label", `${this.group.title} of the last ten minutes; now ${last.join(", ")}`);
  }

  pause(button) {
    this.paused = !this.paused;
    button.textContent = this.paused ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", String(this.paused));
    if (!this.paused) this.draw();
  }

  rows() {
    const scale = this.group.scale ?? 1;
    return this.at.map((at, i) => [
      new Date(at * 1000).toISOString(),
      ...this.values.map((values) => (values[i] === null ? "" : String(Number((values[i] * scale).toPrecision(6))))),
    ]);
  }

  table() {
    if (!this.details.open) return;
    const table = this.details.querySelector("table");
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
      return row;
    };
    table.tHead.replaceChildren(line(["Time (UTC)", ...this.names], "th"));
    table.tBodies[0].replaceChildren(...this.rows().slice(-60).reverse().map((cells) => line(cells, "td")));
  }

  download() {
    // A name from a BMC that begins like a formula must not become one in a spreadsheet.
    const safe = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
    const head = ["time", ...this.names.map((name) => `${name} (${this.group.unit})`)].map(safe).join(",");
    const lines = this.rows().map((cells) => cells.join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([[head, ...lines].join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = `${this.group.title.toLowerCase().replaceAll(" ", "-")}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  destroy() {
    charts.delete(this);
    watcher.unobserve(this.figure);
    Plotly.purge(this.place);
    this.figure.remove();
  }
}

// Only what is on screen is drawn; what was missed meanwhile is asked of the server.
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = [...charts].find(({ figure }) => figure === target);
    if (!chart) continue;
    const before = chart.visible;
    chart.visible = isIntersecting;
    if (isIntersecting && !before) chart.backfill();
  }
});

/** Mark the same instant in all other charts. */
function mark(origin, x) {
  for (const chart of charts) {
    if (chart === origin || !chart.listening || !chart.visible) continue;
    if (x === null) Plotly.Fx.unhover(chart.place);
    else {
      const point = chart.trace(0).x.findIndex((one) => one >= x);
      if (point >= 0) Plotly.Fx.hover(chart.place, chart.series.map((_, curveNumber) => ({ curveNumber, pointNumber: point })));
    }
  }
}

/** Colours tell things apart, and dashes what is measured of them; with one thing, colours tell what is measured. */
function stylesOf(series) {
  const things = [...new Set(series.map((one) => `${one.object}/${one.id}`))];
  const labels = [...new Set(series.map((one) => one.quantity))];
  if (things.length < 2 || labels.length > DASHES.length) {
    return series.map((_, place) => ({ colour: place, dash: place < 8 ? "solid" : "dot" }));
  }
  return series.map((one) => ({
    colour: things.indexOf(`${one.object}/${one.id}`), dash: DASHES[labels.indexOf(one.quantity)],
  }));
}

function build(section, frame) {
  const objects = section.dataset.chartObjects.split(" ");
  const mine = frame.series.filter((one) => objects.includes(`${one.object}/${one.id}`));
  const keys = mine.map((one) => one.key).join(" ");
  if (section.dataset.keys === keys) return;
  section.dataset.keys = keys;
  for (const chart of [...charts]) if (section.contains(chart.figure)) chart.destroy();
  const labels = JSON.parse(section.dataset.names || "{}");
  for (const group of GROUPS) {
    const series = mine.filter(group.of);
    if (series.length === 0 || charts.size >= MOST_CHARTS) continue;
    const names = series.map((one) => [labels[`${one.object}/${one.id}`], one.label].filter(Boolean).join(" "));
    new Chart(section, frame.chassis, group, series, names);
  }
}

document.addEventListener("falconweb:frame", ({ detail: frame }) => {
  for (const section of document.querySelectorAll(`[data-chassis="${frame.chassis}"] [data-charts]`)) build(section, frame);
  for (const chart of charts) if (chart.chassis === frame.chassis) chart.append(frame);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const chart of charts) if (chart.visible) chart.backfill();
});
document.addEventListener("falconweb:theme", () => {
  for (const chart of charts) if (chart.visible) chart.draw();
});
for (const section of document.querySelectorAll("[data-chassis] [data-charts]")) {
  const frame = newest(Number(section.closest("[data-chassis]").dataset.chassis));
  if (frame) build(section, frame);
}
