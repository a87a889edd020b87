// Figures of benchmarks: bars, points or lines with their intervals, drawn of the same data as the table below. Each is
// drawn once it comes into sight; the library is fetched with the first.
import { colours, forgetColours } from "./theme-colours.js";

const CONFIG = { displayModeBar: false, responsive: true, showSendToCloud: false };
const NARROWEST = 22; // px of a bar, before the chart becomes wider than its place
const LETTER = 6.4; // px of a letter, about
const MOST_LINES = 4; // of a name below an axis; where one needs more, all places are numbered
const MARGINS = 90; // px beside the places of an axis
const GAP = 1.2; // bars' widths between two places
const WIDEST = 120; // px of a bar
const HOVERED = 40; // letters a line of a name that is hovered over
const SIGN = 70; // px of a sign in the legend of a picture, with the room about it
const ROW = 20; // px of its line
const PNG = { format: "png", width: 1400, height: 720, scale: 2 };
const ASLANT = 240; // px more of its height where names stand aslant
const GREY = "rgba(128, 128, 128, .3)";
// What tells where a figure comes from, besides the word: the filling of bars, the sign of points, the dashes of lines.
const LOOKS = {
  measured: { pattern: "", symbol: "circle", dash: "solid" },
  simulated: { pattern: "/", symbol: "square", dash: "dash" },
  predicted: { pattern: ".", symbol: "circle-open", dash: "dot" },
  imported: { pattern: "x", symbol: "diamond", dash: "dashdot" },
  published: { pattern: "-", symbol: "triangle-up-open", dash: "longdash" },
};
const DASHES = { solid: "none", dash: "5 3", dot: "1.5 3", dashdot: "6 2 1.5 2", longdash: "9 3" };
const SIGNS = {
  circle: "M11 3a4 4 0 1 1 0 8 4 4 0 1 1 0-8z",
  square: "M7 3h8v8H7z",
  diamond: "M11 2l5 5-5 5-5-5z",
  "circle-open": "M11 3a4 4 0 1 1 0 8 4 4 0 1 1 0-8z",
  "triangle-up-open": "M11 2.5l5 9H6z",
};
const charts = [];
let library = null;

/** The chart library, fetched once. */
function fetched(address) {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", reject);
    document.head.append(script);
  });
  return library;
}

// Plotly takes names as markup.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const letter = (nth) =>
  nth < 26 ? String.fromCharCode(65 + nth) : `${String.fromCharCode(64 + Math.floor(nth / 26))}${letter(nth % 26)}`;
const short = (value) => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4))));

/** Round numbers (1, 2, 5) for an axis of powers. */
function decades(values) {
  const found = [];
  const most = Math.max(...values);
  for (let power = 10 ** Math.floor(Math.log10(Math.min(...values))); power <= most; power *= 10)
    found.push(power, 2 * power, 5 * power);
  return found;
}

/** A long name in lines of about so many characters. */
function linesOf(text, most) {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines;
}

const wrapped = (text, most) => linesOf(text, most).map(plain).join("<br>");

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
      letter: letter(nth),
      look: LOOKS[provenance],
    }));
    this.places = this.data.kind === "bars" ? [...new Set(this.data.marks.map(({ x }) => x))] : [];
    this.buildLegend();
    this.buildKey();
    this.paintLegend();
    if (matchMedia("(max-width: 700px)").matches) figure.querySelector("details").open = false; // it is long there
    const png = figure.querySelector("[data-png]");
    png.addEventListener("click", () => this.save());
  }

  buildLegend() {
    this.legend.append(
      ...this.entries.map((entry) => {
        const item = document.createElement("li");
        const button = Object.assign(document.createElement("button"), {
          type: "button",
          className: "quiet small",
          title: "Hide or show",
        });
        button.setAttribute("aria-pressed", "true");
        const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        sample.setAttribute("viewBox", "0 0 22 14");
        sample.setAttribute("aria-hidden", "true");
        entry.sample = sample;
        button.append(
          sample,
          Object.assign(document.createElement("b"), { textContent: entry.letter }),
          Object.assign(document.createElement("span"), { textContent: `${entry.group} (${entry.provenance})` }),
        );
        button.addEventListener("click", () => {
          if (!this.hidden.delete(entry.key)) this.hidden.add(entry.key);
          button.setAttribute("aria-pressed", String(!this.hidden.has(entry.key)));
          this.draw();
        });
        item.append(button);
        return item;
      }),
    );
  }

  /** What the numbers below the axis are, where its places have names too long for it. */
  buildKey() {
    this.key = Object.assign(document.createElement("ol"), { className: "chart-places", hidden: true });
    this.key.setAttribute("aria-label", this.data.x.title);
    this.key.append(...this.places.map((one) => Object.assign(document.createElement("li"), { textContent: one })));
    this.legend.before(this.key);
  }

  /** Where bars stand, in widths of a bar: beside each other, without room for those that a place does not have. */
  stand() {
    this.at = new Map();
    this.ticks = [];
    this.end = 0;
    for (const place of this.places) {
      const there = this.entries.filter(
        ({ key }) => !this.hidden.has(key) && this.marks(key).some(({ x }) => x === place),
      );
      if (!there.length) continue;
      const begin = this.end ? this.end + GAP : 0;
      for (const [nth, { key }] of there.entries()) this.at.set(`${key}\n${place}`, begin + nth + 0.5);
      this.end = begin + there.length;
      this.ticks.push({ place, at: (begin + this.end) / 2, bars: there.length });
    }
  }

  /** Name the places below a chart so wide (px): in lines; where a name is too long for that `otherwise`: numbers, aslant. */
  name(width, otherwise) {
    const bar = Math.max(1, width - MARGINS) / (this.end + GAP);
    this.bar = Math.min(0.92, WIDEST / bar);
    const letters = ({ bars }) => Math.floor(((bars + GAP) * bar) / LETTER - 0.5);
    const fits = (tick) => {
      const lines = linesOf(tick.place, letters(tick));
      return lines.length <= MOST_LINES && lines.every((one) => one.length <= letters(tick));
    };
    this.named = this.ticks.every(fits) ? "lines" : otherwise;
    for (const tick of this.ticks) {
      if (this.named === "numbers") tick.text = String(this.places.indexOf(tick.place) + 1);
      else tick.text = this.named === "aslant" ? plain(tick.place) : wrapped(tick.place, letters(tick));
    }
  }

  marks(key) {
    return this.data.marks.filter(({ group, provenance }) => `${group}\n${provenance}` === key);
  }

  /** The samples of the legend, in the colours of the theme. */
  paintLegend() {
    const { palette } = colours();
    for (const { sample, colour, look } of this.entries) {
      const ink = palette[colour % palette.length];
      const draw = (d, attributes) => {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        for (const [name, value] of Object.entries({ d, fill: "none", stroke: ink, "stroke-width": 2, ...attributes }))
          path.setAttribute(name, value);
        return path;
      };
      const parts = [];
      if (this.data.kind === "bars") {
        parts.push(draw("M1 1h20v12H1z", { fill: look.pattern ? "none" : ink, "stroke-width": 1.5 }));
        if (look.pattern === "/") parts.push(draw("M3 13L11 1M9 13L17 1M15 13L21 4", { "stroke-width": 1.5 }));
        if (look.pattern === "x")
          parts.push(draw("M3 13L11 1M9 13L17 1M5 1L13 13M11 1L19 13", { "stroke-width": 1.2 }));
        if (look.pattern === ".") parts.push(draw("M5 5h2M11 5h2M17 5h1M5 9h2M11 9h2M17 9h1"));
        if (look.pattern === "-") parts.push(draw("M1 5h20M1 9h20", { "stroke-width": 1.2 }));
      } else {
        parts.push(draw("M0 7h22", { "stroke-dasharray": DASHES[look.dash] }));
        if (this.data.kind === "points")
          parts.push(draw(SIGNS[look.symbol], { fill: look.symbol.endsWith("open") ? "none" : ink }));
      }
      sample.replaceChildren(...parts);
    }
  }

  /** What the library draws: one trace for each group and provenance; never two provenances in one. */
  traces(ink) {
    const { data } = this;
    const several = this.entries.length > 1;
    const shown = this.entries.filter(({ key }) => !this.hidden.has(key));
    const traces = shown.map((entry, traceNumber) => {
      const { group, provenance, look } = entry;
      const colour = ink.palette[entry.colour % ink.palette.length];
      const name = plain(`${several ? `${entry.letter}  ` : ""}${group} (${provenance})`);
      const base = { name, meta: entry.key, hoverlabel: { namelength: -1 } };
      if (data.kind === "lines") {
        const line = data.lines.find((one) => one.group === group && one.provenance === provenance);
        // Its letter, at a place of its own: lines that lie over each other would hide each other's.
        const known = line.values.flatMap((value, at) => (value === null ? [] : [at]));
        const lettered = known[Math.floor((known.length * (traceNumber + 1)) / (shown.length + 1))];
        return {
          ...base,
          type: "scatter",
          mode: several ? "lines+text" : "lines",
          x: data.at,
          y: line.values,
          connectgaps: false,
          line: { color: colour, dash: look.dash, width: 2 },
          text: line.values.map((_, at) => (at === lettered ? entry.letter : "")),
          textposition: "top center",
          textfont: { color: colour, weight: 700 },
          hovertemplate: `%{y:.4~g} ${plain(data.y.unit)}`,
        };
      }
      const marks = this.marks(entry.key);
      const common = {
        ...base,
        x: marks.map(({ x }) => this.at.get(`${entry.key}\n${x}`) ?? x),
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
          low === null ? "" : `<br>${short(low)} to ${short(high)}`,
          count ? `<br>${count} ${plain(data.counts)}` : "",
          typeof x === "string" ? `${wrapped(x, HOVERED)}<br>` : "",
        ]),
        hovertemplate: `%{customdata[2]}%{y:.4~g} ${plain(data.y.unit)}%{customdata[0]}%{customdata[1]}<extra>${name}</extra>`,
      };
      if (data.kind === "points") {
        return {
          ...common,
          type: "scatter",
          mode: "lines+markers",
          line: { color: colour, dash: look.dash, width: 2 },
          marker: { color: colour, symbol: look.symbol, size: 9, line: { color: colour, width: 2 } },
        };
      }
      return {
        ...common,
        type: "bar",
        width: this.bar,
        marker: {
          color: colour,
          line: { color: colour, width: 1 },
          pattern: {
            shape: look.pattern,
            fillmode: "replace",
            fgcolor: colour,
            bgcolor: "rgba(0,0,0,0)",
            size: 8,
            solidity: look.pattern === "." ? 0.25 : 0.35,
          },
        },
        text: several ? marks.map(() => entry.letter) : undefined,
        textposition: "inside",
        insidetextanchor: "start",
        textangle: 0,
        insidetextfont: {
          color: look.pattern ? ink.text : ink.card,
          weight: 700,
          shadow: look.pattern ? "auto" : "none",
        },
      };
    });
    return [...traces, ...this.ideals(shown, ink)];
  }

  /** Lines of what would be in proportion: no figures of a run, so without signs and intervals. */
  ideals(shown, ink) {
    return shown
      .map(({ group, provenance, colour, letter: sign }) => {
        const marks = this.data.ideals.filter((one) => one.group === group && one.provenance === provenance);
        return marks.length < 2
          ? null
          : {
              type: "scatter",
              mode: "lines",
              name: `${sign}  in proportion`,
              x: marks.map(({ x }) => x),
              y: marks.map(({ value }) => value),
              line: { color: ink.palette[colour % ink.palette.length], dash: "1px,4px", width: 1.5 },
              opacity: 0.8,
              hovertemplate: "%{y:.4~g} in proportion<extra></extra>",
              showlegend: false,
            };
      })
      .filter(Boolean);
  }

  layout(ink, width) {
    const { data } = this;
    const axis = (one) => ({
      title: { text: plain(one.unit ? `${one.title} (${one.unit})` : one.title), standoff: 12 },
      automargin: true,
      fixedrange: true,
      gridcolor: GREY,
      zerolinecolor: GREY,
      type: one.kind === "log" ? "log" : "linear",
    });
    const numbers = [...new Set(data.marks.map(({ x }) => x))].sort((one, other) => one - other);
    const y = axis(data.y);
    if (y.type === "linear" && data.kind !== "lines") y.rangemode = "tozero";
    if (y.type === "log")
      Object.assign(y, { tickvals: decades([...data.marks, ...data.ideals].map(({ value }) => value)) });
    if (data.y.unit === "%") Object.assign(y, { range: [0, 105] });
    const x = axis(data.x);
    if (data.kind === "bars") {
      Object.assign(x, {
        type: "linear",
        showgrid: false,
        zeroline: false,
        range: [-GAP / 2, this.end + GAP / 2],
        tickangle: this.named === "aslant" ? -45 : 0,
        tickvals: this.ticks.map(({ at }) => at),
        ticktext: this.ticks.map(({ text }) => text),
      });
    }
    if (data.kind === "points") Object.assign(x, { tickvals: numbers, ticktext: numbers.map(short) });
    return {
      barmode: "overlay",
      height: width < 500 ? 320 : 380,
      margin: { l: 64, r: 24, t: 12, b: 56 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink.text, size: 12, family: ink.family },
      hovermode: data.kind === "lines" ? "x unified" : "closest",
      hoverlabel: { bgcolor: ink.card, font: { color: ink.text } },
      showlegend: false,
      xaxis: x,
      yaxis: y,
      uniformtext: { minsize: 9, mode: "hide" },
      shapes: data.baseline
        ? [
            {
              type: "line",
              xref: "paper",
              x0: 0,
              x1: 1,
              y0: 1,
              y1: 1,
              line: { color: ink.text, width: 1, dash: "dot" },
            },
          ]
        : [],
    };
  }

  ink() {
    return { ...colours(), card: getComputedStyle(this.figure.closest(".card")).backgroundColor };
  }

  draw() {
    if (!window.Plotly) return;
    const ink = this.ink();
    const width = this.plot.parentElement.clientWidth;
    this.stand();
    const wanted = this.data.kind === "bars" ? Math.ceil((this.end + GAP) * NARROWEST) + MARGINS : 0;
    // The width first: the library measures its place.
    this.plot.style.minWidth = wanted > width ? `${wanted}px` : "";
    this.name(Math.max(width, wanted), "numbers");
    this.key.hidden = this.named !== "numbers";
    this.paintLegend();
    const layout = this.layout(ink, width);
    window.Plotly.react(this.plot, this.traces(ink), layout, CONFIG);
    this.drawn = true;
    this.figure.querySelector("[data-png]").disabled = false;
    this.plot.dataset.drawn = this.entries.length - this.hidden.size;
  }

  /** Save it as a picture, with its title, its legend, and where its figures come from. */
  async save() {
    const ink = this.ink();
    const { title, provenances } = this.data;
    const longest = Math.max(...this.entries.map((one) => `${one.group} (${one.provenance})`.length));
    const beside = SIGN + LETTER * Math.min(longest, HOVERED);
    this.name(PNG.width - beside, "aslant");
    const data = this.traces(ink).map((trace) => ({
      showlegend: true,
      ...trace,
      name: linesOf(trace.name, HOVERED).join("<br>"),
    }));
    const height = Math.max(
      PNG.height + (this.named === "aslant" ? ASLANT : 0),
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
      // Without markup: it would come with inline styles, which the site's policy refuses.
      title: { text: `${plain(title)} (${provenances.join(", ")})`, font: { size: 18 } },
    };
    const address = await window.Plotly.toImage({ data, layout }, { ...PNG, height });
    const link = Object.assign(document.createElement("a"), { href: address, download: `${this.data.name}.png` });
    link.click();
    this.draw(); // the layout of the page again
  }
}

const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      const chart = charts.find(({ figure }) => figure === target);
      fetched(target.dataset.library).then(
        () => chart.draw(),
        () => {
          chart.plot.textContent =
            "The chart library could not be fetched. Load the page again; the table has all of it.";
        },
      );
    }
  },
  { rootMargin: "300px" },
);

for (const figure of document.querySelectorAll("[data-figure]")) {
  charts.push(new FigureChart(figure));
  seen.observe(figure);
}

function again() {
  forgetColours();
  for (const chart of charts) if (chart.drawn) chart.draw();
}

document.addEventListener("falconweb:theme", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
let width = innerWidth;
addEventListener("resize", () => {
  if (width === innerWidth) return;
  width = innerWidth;
  for (const chart of charts) if (chart.drawn) chart.draw();
});
// Paper is light, and has all charts, also those that nobody has scrolled to.
addEventListener("beforeprint", () => {
  document.documentElement.style.colorScheme = "light";
  forgetColours();
  for (const chart of charts) chart.draw();
});
addEventListener("afterprint", () => {
  document.documentElement.style.colorScheme = "";
  again();
});
