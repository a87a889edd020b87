// One chart of lines over time: create, set, append, destroy. Both the last ten minutes and any other range use it.
//
// It is drawn on a canvas of our own, not by Plotly: eight charts of four lines with 600 points cost Plotly 70 to 85 ms
// of the main thread at each reading (react, extendTraces and update alike, measured in Chromium). Nothing of it is inline
// style in a document, so that a strict policy holds.

import { across, DASHES, MARGIN } from "./chart-drawing.js";
import { headsOf, rowsOf, saveCsv, savePicture } from "./chart-export.js";
import { Painter } from "./chart-painter.js";
import { Columns } from "./columns.js";
import "./chart-print.js";
import { exact, stepped } from "./axes.js";
import { charts, drawSoon, enter, leave } from "./chart-schedule.js";
import { format } from "./live-values.js";
import { colours } from "./theme-colours.js";

export const MOST_LINES = 16;
const LEAST_DRAG = 6; // px; less is a click

export class Chart {
  /** `lines`: [{ name, unit, colour, dash }]. `options`: { title, unit, scale, top, ticks, group, span (words), step,
   * tableWords, zoom(since, until), csv(), async backfill(): whether it worked }. Values are scaled by `scale` where they are shown. */
  constructor(section, lines, options) {
    this.lines = lines.slice(0, MOST_LINES);
    this.options = options;
    this.scale = options.scale ?? 1;
    this.columns = new Columns(this.lines.length, options.step ?? 0);
    this.hidden = this.lines.map(() => false);
    this.gaps = [];
    this.range = null; // [since, until]; null: the last `options.seconds`
    this.visible = false;
    this.fresh = false; // it shows what it has
    this.filled = null; // a promise, once the server was asked for what it has
    this.paused = false;
    this.marked = null;
    this.width = 0;
    this.build(section, lines.length);
    enter(this);
  }

  build(section, count) {
    this.figure = document.getElementById("chart-template").content.firstElementChild.cloneNode(true);
    this.place = this.figure.querySelector("[data-plot]");
    const { title, unit } = this.options;
    this.figure.querySelector("figcaption").textContent =
      `${title}${unit ? `, ${unit}` : ""}${count > this.lines.length ? ` (${this.lines.length} of ${count})` : ""}`;
    this.canvas = document.createElement("canvas");
    this.painter = new Painter(this.canvas, this.columns);
    this.cross = Object.assign(document.createElement("div"), { className: "chart-cross", hidden: true });
    this.drag = Object.assign(document.createElement("div"), { className: "chart-drag", hidden: true });
    this.instant = Object.assign(document.createElement("p"), { className: "chart-instant", hidden: true });
    this.words = Object.assign(document.createElement("p"), { className: "chart-words", hidden: true });
    this.said = Object.assign(document.createElement("p"), { className: "hidden", role: "status" });
    this.place.append(this.canvas, this.cross, this.drag, this.instant, this.words);
    this.place.after(this.said);
    this.place.tabIndex = 0;
    this.legend = this.figure.querySelector(".chart-legend");
    this.legend.append(...this.lines.map((line, place) => this.entry(line, place)));
    this.details = this.figure.querySelector("details");
    const rows = this.details.querySelector("table").parentElement;
    rows.tabIndex = 0; // it scrolls
    rows.setAttribute("role", "region");
    rows.setAttribute("aria-label", `${title} as a table`);
    if (this.options.tableWords) this.details.querySelector("summary").textContent = this.options.tableWords;
    this.details.addEventListener("toggle", () => this.table());
    const head = this.figure.querySelector(".chart-head");
    this.png = Object.assign(document.createElement("button"), {
      type: "button",
      className: "quiet small",
      textContent: "PNG",
    });
    this.png.dataset.png = "";
    this.png.disabled = true; // until there is something in it
    head.append(this.png);
    this.png.addEventListener("click", () => savePicture(this));
    head.querySelector("[data-csv]").addEventListener("click", () => this.options.csv?.() ?? saveCsv(this));
    this.button = head.querySelector("[data-pause]");
    this.button.addEventListener("click", () => this.pause());
    this.place.addEventListener("pointermove", (event) => this.moved(event));
    this.place.addEventListener("pointerleave", () => this.dragFrom === undefined && mark(null));
    this.place.addEventListener("pointerdown", (event) => this.pressed(event));
    this.place.addEventListener("pointerup", (event) => this.released(event));
    this.place.addEventListener("pointercancel", () => this.dropped());
    this.place.addEventListener("keydown", (event) => this.key(event));
    this.place.addEventListener("blur", () => mark(null));
    section.append(this.figure);
    this.label();
  }

  /** A line of the legend: it hides and shows its line, and says the newest value, or that of the marked instant. */
  entry(line, place) {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet small" });
    button.setAttribute("aria-pressed", "true");
    button.title = line.made ? `Hide or show. ${line.made}` : "Hide or show";
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sample.setAttribute("viewBox", "0 0 24 4");
    sample.setAttribute("aria-hidden", "true");
    const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
    stroke.setAttribute("d", "M0 2h24");
    stroke.setAttribute("stroke-dasharray", DASHES[line.dash].join(" ") || "none");
    sample.append(stroke);
    const value = document.createElement("output");
    value.setAttribute("aria-live", "off"); // it changes each second
    button.append(sample, Object.assign(document.createElement("span"), { textContent: line.name }), value);
    button.addEventListener("click", () => {
      this.hidden[place] = !this.hidden[place];
      button.setAttribute("aria-pressed", String(!this.hidden[place]));
      this.draw();
    });
    item.append(button);
    return item;
  }

  /** Take what the server has: { at, step, series: [{ mean, low, high }], gaps } and the range that it is of. */
  set({ at, step = 0, series, gaps = [] }, range = null) {
    this.columns = Columns.of(at, step, series.slice(0, MOST_LINES));
    this.painter.set(this.columns);
    this.gaps = gaps;
    this.range = range;
    this.label();
    for (const chart of charts)
      if (chart === this || (this.options.group && chart.options.group === this.options.group)) chart.draw();
  }

  /** Take a live reading, a value a line. */
  append(at, values) {
    const since = at - this.options.seconds - this.columns.step;
    if (!this.columns.append(at, values, since)) return;
    this.painter.append(at, values, since);
    if (!this.paused) this.draw();
  }

  /** Ask the server for what it has; where that came to nothing, it is asked again when there is time. */
  fill() {
    const asked = this.options.backfill(this).then((worked) => {
      if (!worked && this.filled === asked) this.filled = null;
    });
    this.filled = asked;
    return asked;
  }

  /** Have it drawn soon; out of sight there is no hurry. */
  draw() {
    this.fresh = false;
    if (this.visible && !document.hidden) drawSoon(this);
  }

  /** Say something in the place of lines: why there are none. */
  say(words) {
    if (this.words.textContent === words) return;
    this.words.textContent = words;
    this.words.hidden = !words;
  }

  shown = (line) => !this.hidden[line];

  /** The range that is shown, s. */
  get window() {
    if (this.range) return this.range;
    const until = this.columns.newest || Date.now() / 1000;
    return [until + this.columns.step - this.options.seconds, until + this.columns.step];
  }

  /** The ends of the axis of values; charts of a group share them, so that they can be compared. */
  get ends() {
    const { group, top } = this.options;
    let [bottom, most] = this.columns.extent(this.shown);
    for (const other of charts) {
      if (!group || other.options.group !== group || other === this) continue;
      const [low, high] = other.columns.extent(other.shown);
      bottom = Math.min(bottom, low);
      most = Math.max(most, high);
    }
    return [-stepped(-bottom * this.scale), top ?? (stepped(most * this.scale) || 1)];
  }

  /** What is shown, as chart-drawing.js takes it, without its columns. */
  view() {
    const ink = colours();
    const lines = this.lines.flatMap(({ colour, dash }, place) =>
      this.hidden[place] ? [] : [{ place, colour: ink.palette[colour % ink.palette.length], dash }],
    );
    return {
      width: this.width,
      ratio: devicePixelRatio || 1,
      window: this.window,
      ends: this.ends,
      scale: this.scale,
      ticks: this.options.ticks,
      gaps: this.gaps,
      ink,
      lines,
      banded: this.lines.length <= 4, // more would hide each other
    };
  }

  paint() {
    if (this.width === 0) return;
    const view = this.view();
    Object.assign(this, across(view.window, this.width));
    this.painter.paint(view);
    this.fresh = true;
    if (this.png.disabled) this.png.disabled = this.columns.length === 0; // to set the same would cost, each second
    this.describe();
    this.canvas.dataset.points = this.columns.length;
    this.canvas.dataset.newest = this.columns.newest;
    if (this.details.open) this.table();
  }

  /** Legend and marked instant. */
  describe() {
    const { times: at, means: mean, length } = this.columns;
    const { palette } = colours();
    const place = this.marked === null ? length - 1 : this.columns.nearest(this.marked);
    [...this.legend.children].forEach((item, line) => {
      const output = item.querySelector("output");
      const words = format(mean[line]?.[place] ?? NaN, this.lines[line].unit);
      if (output.textContent !== words) output.textContent = words;
      const stroke = item.querySelector("path");
      const colour = palette[this.lines[line].colour % palette.length];
      if (stroke.getAttribute("stroke") !== colour) stroke.setAttribute("stroke", colour);
    });
    this.cross.hidden = this.instant.hidden = this.marked === null || place < 0 || !this.x;
    if (this.cross.hidden) return;
    const x = this.x(this.marked);
    if (x < MARGIN.left - 1 || x > this.right + 1) {
      this.cross.hidden = this.instant.hidden = true;
      return;
    }
    this.cross.style.transform = `translateX(${x}px)`;
    const gap = this.gaps.find((one) => one.since <= this.marked && this.marked < one.until);
    this.instant.textContent = exact(at[place]) + (gap ? `: ${gap.reason}` : "");
    this.instant.classList.toggle("left", x > this.width / 2);
  }

  /** What is read aloud of it as a whole; not with each reading, which would flood a screen reader. */
  label() {
    const at = this.columns.length - 1;
    this.place.setAttribute(
      "aria-label",
      `${this.options.title} ${this.options.span}${at < 0 ? "" : `; newest ${this.values(at)}`}`,
    );
  }

  /** The values at a point in words. */
  values(point) {
    return this.lines
      .map(({ name, unit }, line) => `${name} ${format(this.columns.means[line]?.[point] ?? NaN, unit)}`)
      .join(", ");
  }

  timeAt(event) {
    const x = event.clientX - this.place.getBoundingClientRect().left;
    return (
      this.since +
      ((Math.min(Math.max(x, MARGIN.left), this.right) - MARGIN.left) / (this.right - MARGIN.left)) *
        (this.until - this.since)
    );
  }

  moved(event) {
    if (!this.x) return;
    mark(this.timeAt(event));
    if (this.dragFrom === undefined) return;
    const [from, to] = [this.dragFrom, this.timeAt(event)].sort((one, other) => one - other);
    this.drag.hidden = false;
    this.drag.style.transform = `translateX(${this.x(from)}px)`;
    this.drag.style.width = `${this.x(to) - this.x(from)}px`;
  }

  pressed(event) {
    if (!this.options.zoom || !this.x || event.button !== 0 || event.pointerType === "touch") return;
    this.dragFrom = this.timeAt(event);
    this.place.setPointerCapture(event.pointerId);
  }

  released(event) {
    if (this.dragFrom === undefined) return;
    const [from, to] = [this.dragFrom, this.timeAt(event)].sort((one, other) => one - other);
    const wide = this.x(to) - this.x(from) >= LEAST_DRAG;
    this.dropped();
    if (wide) this.options.zoom(from, to);
  }

  dropped() {
    this.dragFrom = undefined;
    this.drag.hidden = true;
  }

  /** Arrows move the marked instant, from point to point; with Shift by ten; Enter twice zooms in between. */
  key(event) {
    const { at } = this.columns;
    if (at.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.marked === null ? at.length - 1 : this.columns.nearest(this.marked);
    const far = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: now - far, ArrowRight: now + far, Home: 0, End: at.length - 1 }[event.key];
    if (event.key === "Enter" && this.options.zoom && this.marked !== null) {
      event.preventDefault();
      if (this.enterFrom === undefined) {
        this.enterFrom = this.marked;
      } else {
        const [from, until] = [this.enterFrom, this.marked].sort((one, other) => one - other);
        this.enterFrom = undefined;
        if (until > from) this.options.zoom(from, until);
      }
    } else if (event.key === "Escape") {
      this.enterFrom = undefined;
      mark(null);
    } else if (to !== undefined) {
      event.preventDefault();
      mark(at[Math.min(Math.max(to, 0), at.length - 1)]);
      this.said.textContent = `${this.instant.textContent}: ${this.values(this.columns.nearest(this.marked))}`;
    }
  }

  pause() {
    this.paused = !this.paused;
    this.button.textContent = this.paused ? "Resume" : "Pause";
    this.button.setAttribute("aria-pressed", String(this.paused));
    if (!this.paused) this.draw();
  }

  table() {
    if (!this.details.open) return;
    const table = this.details.querySelector("table");
    const line = (cells, tag) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text) => Object.assign(document.createElement(tag), { textContent: text })));
      return row;
    };
    table.tHead.replaceChildren(line(["Time (UTC)", ...headsOf(this)], "th"));
    const rows = rowsOf(this)
      .reverse()
      .slice(0, this.options.rows ?? 60);
    table.tBodies[0].replaceChildren(...rows.map((cells) => line(cells, "td")));
  }

  destroy() {
    leave(this);
    this.painter.end();
    this.figure.remove();
  }
}

/** The charts of the page, those of a section alone where one is given. */
export const chartsOf = (section = document) => [...charts].filter(({ figure }) => section.contains(figure));

/** Mark the same instant (s; null: none) in all charts. */
export function mark(at) {
  for (const chart of charts) {
    if (chart.marked === null && at === null) continue;
    chart.marked = at;
    if (chart.visible && chart.x) chart.describe();
  }
}

/** Colours tell things apart, and dashes what is measured of them; with one thing, colours tell what is measured. */
export function stylesOf(series) {
  const names = Object.keys(DASHES);
  const things = [...new Set(series.map((one) => one.thing))];
  const quantities = [...new Set(series.map((one) => one.quantity))];
  if (things.length < 2 || quantities.length > names.length) {
    return series.map((_, place) => ({ colour: place, dash: place < 8 ? "solid" : "dot" }));
  }
  return series.map((one) => ({ colour: things.indexOf(one.thing), dash: names[quantities.indexOf(one.quantity)] }));
}
