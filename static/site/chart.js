// One chart of lines over time: create, set, append, destroy. Charts of the last ten minutes and of any other range
// use it.
//
// It is drawn on a canvas of our own, not by Plotly: eight charts of four lines with 600 points cost Plotly 70 to 85
// ms of the main thread at each reading (react, extendTraces and update alike, measured in Chromium). It sets no
// inline style in the document, which a strict policy would refuse.

import { axisEnds } from "./axes.js";
import { DASHES, MARGIN, timeScale } from "./chart-drawing.js";
import { columnNames, savePicture, saveTable, tableRows } from "./chart-export.js";
import { Painter } from "./chart-painter.js";
import "./chart-print.js";
import { charts, register, scheduleDraw, unregister } from "./chart-schedule.js";
import { Columns } from "./columns.js";
import { element, svgElement } from "./dom.js";
import { formatTime, formatValue, pageZone, severityLabel } from "./format.js";
import { pointByKey } from "./keyboard.js";
import { _ } from "./language.js";
import { colours } from "./theme-colours.js";

export const MOST_LINES = 16;
const MOST_LIMITS = 4;
const LIMIT_REACH = 2; // of the highest value: limits up to there are in the picture
const LEAST_DRAG = 6; // px; less is a click

export class Chart {
  /** `lines`: [{ name, unit, colour, dash }]. `options`: { title, unit, scale, top, ticks, group, span (words), step,
   * tableWords, zoom(since, until), csv(), async load(): whether it worked }. Values are multiplied by `scale` where
   * they are shown. */
  constructor(section, lines, options) {
    this.lines = lines.slice(0, MOST_LINES);
    this.options = options;
    this.scale = options.scale ?? 1;
    this.columns = new Columns(this.lines.length, options.step ?? 0);
    this.hidden = this.lines.map(() => false);
    this.gaps = [];
    this.limits = []; // [{ value, is_upper, severity }]
    this.range = null; // [since, until]; null: the last `options.seconds`
    this.visible = false;
    this.isDrawn = false; // its picture has all of its points
    this.loading = null; // the promise of the last load; null where there is none, or it failed
    this.paused = false;
    this.marked = null;
    this.width = 0;
    this.build(section, lines.length);
    register(this);
  }

  build(section, count) {
    this.figure = document.getElementById("chart-template").content.firstElementChild.cloneNode(true);
    this.place = this.figure.querySelector("[data-plot]");
    const { title, unit } = this.options;
    const part = _("({shown} of {count})", { shown: this.lines.length, count });
    this.figure.querySelector("figcaption").textContent =
      `${title}${unit ? `, ${unit}` : ""}${count > this.lines.length ? ` ${part}` : ""}`;
    this.canvas = document.createElement("canvas");
    this.painter = new Painter(this.canvas, this.columns);
    this.cross = element("div", { className: "chart-cross", hidden: true });
    this.drag = element("div", { className: "chart-drag", hidden: true });
    this.instant = element("p", { className: "chart-instant", hidden: true });
    this.words = element("p", { className: "chart-words", hidden: true });
    this.status = element("p", { className: "hidden", role: "status" });
    this.place.append(this.canvas, this.cross, this.drag, this.instant, this.words);
    this.place.after(this.status);
    this.place.tabIndex = 0;
    this.legend = this.figure.querySelector(".chart-legend");
    this.legend.append(...this.lines.map((line, place) => this.legendEntry(line, place)));
    this.details = this.figure.querySelector("details");
    const rows = this.details.querySelector("table").parentElement;
    rows.tabIndex = 0; // it scrolls
    rows.setAttribute("role", "region");
    rows.setAttribute("aria-label", _("{title} as a table", { title }));
    if (this.options.tableWords) this.details.querySelector("summary").textContent = this.options.tableWords;
    this.details.addEventListener("toggle", () => this.showTable());
    const head = this.figure.querySelector(".chart-head");
    this.png = element("button", { type: "button", className: "quiet small" }, "PNG");
    this.png.dataset.png = "";
    this.png.disabled = true; // until the chart has data
    head.append(this.png);
    this.png.addEventListener("click", () => savePicture(this));
    head.querySelector("[data-csv]").addEventListener("click", () => this.options.csv?.() ?? saveTable(this));
    this.button = head.querySelector("[data-pause]");
    this.button.addEventListener("click", () => this.togglePause());
    this.place.addEventListener("pointermove", (event) => this.onPointerMove(event));
    this.place.addEventListener("pointerleave", () => this.dragFrom === undefined && mark(null));
    this.place.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    this.place.addEventListener("pointerup", (event) => this.onPointerUp(event));
    this.place.addEventListener("pointercancel", () => this.endDrag());
    this.place.addEventListener("keydown", (event) => this.onKey(event));
    this.place.addEventListener("blur", () => mark(null));
    section.append(this.figure);
    this.label();
  }

  /** An entry of the legend: it hides and shows its line, and has the newest value, or that at the marked instant. */
  legendEntry(line, place) {
    const hint = _("Hide or show");
    const stroke = svgElement("path", { d: "M0 2h24", "stroke-dasharray": DASHES[line.dash].join(" ") || "none" });
    const button = element(
      "button",
      { type: "button", className: "quiet small", title: line.made ? `${hint}. ${line.made}` : hint },
      svgElement("svg", { viewBox: "0 0 24 4", "aria-hidden": "true" }, stroke),
      element("span", {}, line.name),
      element("output", { ariaLive: "off" }), // it changes each second
    );
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      this.hidden[place] = !this.hidden[place];
      button.setAttribute("aria-pressed", String(!this.hidden[place]));
      this.draw();
    });
    return element("li", {}, button);
  }

  /** Show a response of the server, { at, step, series: [{ mean, low, high }], gaps }, and its range. */
  set({ at, step = 0, series, gaps = [] }, range = null) {
    this.columns = Columns.from(at, step, series.slice(0, MOST_LINES));
    this.painter.set(this.columns);
    this.gaps = gaps;
    this.range = range;
    this.label();
    for (const chart of [this, ...this.peers()]) chart.draw();
  }

  /** Show the limits of its lines. */
  setLimits(limits) {
    const words = ({ label: severity, is_upper, value }) =>
      is_upper
        ? _("{severity} above {value}", { severity, value: this.number(value) })
        : _("{severity} below {value}", { severity, value: this.number(value) });
    const labelled = limits.map((one) => ({ ...one, label: severityLabel(one.severity) }));
    this.limits = [...new Map(labelled.map((one) => [words(one), one])).values()].slice(0, MOST_LIMITS);
    this.limitWords ??= element("p", { className: "faint made" });
    const all = this.limits.map(words).join(", ");
    this.limitWords.textContent = all && _("Limits: {limits}", { limits: all });
    if (this.limits.length > 0) this.legend.after(this.limitWords);
    else this.limitWords.remove();
    this.draw();
  }

  /** A value as it is on its axis, with the unit. */
  number(value) {
    return `${Number((value * this.scale).toPrecision(6))} ${this.options.unit ?? ""}`.trim();
  }

  /** Add a live reading, a value a line. */
  append(at, values) {
    const since = at - this.options.seconds - this.columns.step;
    if (!this.columns.append(at, values, since)) return;
    this.painter.append(at, values, since);
    if (!this.paused) this.draw();
  }

  /** Load the data of the server; a failed load is retried when the browser is idle. */
  load() {
    const loading = this.options.load(this).then((worked) => {
      if (!worked && this.loading === loading) this.loading = null;
    });
    this.loading = loading;
    return loading;
  }

  /** Draw it soon; when the browser is idle if it is out of view. */
  draw() {
    this.isDrawn = false;
    if (this.visible && !document.hidden) scheduleDraw(this);
  }

  /** Show the reason why there are no lines. */
  explain(words) {
    if (this.words.textContent === words) return;
    this.words.textContent = words;
    this.words.hidden = !words;
  }

  isShown = (line) => !this.hidden[line];

  /** The range that is shown, s. */
  get window() {
    if (this.range) return this.range;
    const until = this.columns.newest || Date.now() / 1000;
    return [until + this.columns.step - this.options.seconds, until + this.columns.step];
  }

  /** The other charts of its group: all have the same axis of values, so that they can be compared. */
  peers() {
    const { group } = this.options;
    return group ? [...charts].filter((other) => other !== this && other.options.group === group) : [];
  }

  /** The ends of the axis of values. */
  get ends() {
    const extents = [this, ...this.peers()].map((chart) => chart.columns.extent(chart.isShown));
    const low = Math.min(...extents.map((one) => one[0]));
    const highest = Math.max(...extents.map((one) => one[1]));
    // A limit that is far away would flatten the lines.
    const near = this.limits.map(({ value }) => value).filter((value) => value <= LIMIT_REACH * highest);
    const high = Math.max(highest, ...near);
    return axisEnds(low * this.scale, high * this.scale, this.options.top);
  }

  /** The view that drawChart takes, without its columns. */
  view() {
    const ink = colours();
    const lines = this.lines.flatMap(({ colour, dash }, place) =>
      this.hidden[place] ? [] : [{ place, colour: ink.palette[colour % ink.palette.length], dash }],
    );
    return {
      width: this.width,
      ratio: devicePixelRatio || 1,
      window: this.window,
      zone: pageZone(), // a worker has no page to read it from
      ends: this.ends,
      scale: this.scale,
      ticks: this.options.ticks,
      gaps: this.gaps,
      limits: this.limits,
      ink,
      lines,
      banded: this.lines.length <= 4, // more bands would overlap
    };
  }

  paint() {
    if (this.width === 0) return;
    const view = this.view();
    this.time = timeScale(view.window, this.width);
    this.painter.paint(view);
    this.isDrawn = true;
    // Setting the same value each second has a cost.
    if (this.png.disabled) this.png.disabled = this.columns.length === 0;
    this.describe();
    this.canvas.dataset.points = this.columns.length;
    this.canvas.dataset.newest = this.columns.newest;
    if (this.details.open) this.showTable();
  }

  /** Update the values of the legend and the marked instant. */
  describe() {
    const { times: at, means: mean, length } = this.columns;
    const { palette } = colours();
    const place = this.marked === null ? length - 1 : this.columns.nearest(this.marked);
    [...this.legend.children].forEach((item, line) => {
      const output = item.querySelector("output");
      const words = formatValue(mean[line]?.[place] ?? NaN, this.lines[line].unit);
      if (output.textContent !== words) output.textContent = words;
      const stroke = item.querySelector("path");
      const colour = palette[this.lines[line].colour % palette.length];
      if (stroke.getAttribute("stroke") !== colour) stroke.setAttribute("stroke", colour);
    });
    this.cross.hidden = this.instant.hidden = this.marked === null || place < 0 || !this.time;
    if (this.cross.hidden) return;
    const x = this.time.x(this.marked);
    if (x < MARGIN.left - 1 || x > this.time.right + 1) {
      this.cross.hidden = this.instant.hidden = true;
      return;
    }
    this.cross.style.transform = `translateX(${x}px)`;
    const gap = this.gaps.find((one) => one.since <= this.marked && this.marked < one.until);
    this.instant.textContent = formatTime(at[place]) + (gap ? `: ${gap.reason}` : "");
    this.instant.classList.toggle("left", x > this.width / 2);
  }

  /** Update its accessible name; not with each reading, which would flood a screen reader. */
  label() {
    const at = this.columns.length - 1;
    const newest = at < 0 ? "" : _("; newest {values}", { values: this.values(at) });
    this.place.setAttribute("aria-label", `${this.options.title} ${this.options.span}${newest}`);
  }

  /** The values at a point as text. */
  values(point) {
    return this.lines
      .map(({ name, unit }, line) => `${name} ${formatValue(this.columns.means[line]?.[point] ?? NaN, unit)}`)
      .join(", ");
  }

  timeAt(event) {
    return this.time.timeAt(event.clientX - this.place.getBoundingClientRect().left);
  }

  onPointerMove(event) {
    if (!this.time) return;
    mark(this.timeAt(event));
    if (this.dragFrom === undefined) return;
    const [from, to] = [this.dragFrom, this.timeAt(event)].sort((one, other) => one - other);
    this.drag.hidden = false;
    this.drag.style.transform = `translateX(${this.time.x(from)}px)`;
    this.drag.style.width = `${this.time.x(to) - this.time.x(from)}px`;
  }

  onPointerDown(event) {
    if (!this.options.zoom || !this.time || event.button !== 0 || event.pointerType === "touch") return;
    this.dragFrom = this.timeAt(event);
    this.place.setPointerCapture(event.pointerId);
  }

  onPointerUp(event) {
    if (this.dragFrom === undefined) return;
    const [from, to] = [this.dragFrom, this.timeAt(event)].sort((one, other) => one - other);
    const isDrag = this.time.x(to) - this.time.x(from) >= LEAST_DRAG;
    this.endDrag();
    if (isDrag) this.options.zoom(from, to);
  }

  endDrag() {
    this.dragFrom = undefined;
    this.drag.hidden = true;
  }

  /** Arrow keys move the marked instant by a point, with Shift by ten; Enter at two instants zooms to between them. */
  onKey(event) {
    const { at } = this.columns;
    if (at.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.marked === null ? at.length - 1 : this.columns.nearest(this.marked);
    const to = pointByKey(event.key, event.shiftKey, now, at.length);
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
      mark(at[to]);
      this.status.textContent = `${this.instant.textContent}: ${this.values(this.columns.nearest(this.marked))}`;
    }
  }

  togglePause() {
    this.paused = !this.paused;
    this.button.textContent = this.paused ? _("Resume") : _("Pause");
    this.button.setAttribute("aria-pressed", String(this.paused));
    if (!this.paused) this.draw();
  }

  showTable() {
    if (!this.details.open) return;
    const table = this.details.querySelector("table");
    const row = (cells, tag) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));
    table.tHead.replaceChildren(row([_("Time"), ...columnNames(this, [_("low"), _("mean"), _("high")])], "th"));
    const rows = tableRows(this, formatTime)
      .reverse()
      .slice(0, this.options.rows ?? 60);
    table.tBodies[0].replaceChildren(...rows.map((cells) => row(cells, "td")));
  }

  destroy() {
    unregister(this);
    this.painter.destroy();
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
    if (chart.visible && chart.time) chart.describe();
  }
}
