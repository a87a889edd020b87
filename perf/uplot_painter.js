// Stands in for chart-painter.js: paints the charts of a page with uPlot, which browser.py compares ours with.
import uPlot from "../node_modules/uplot/dist/uPlot.esm.js";

const HEIGHT = 220;
const DASHES = { solid: [], dot: [3, 3], dash: [8, 4], dashdot: [8, 3, 3, 3] };
const utc = (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC");
document.head.append(
  Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/node_modules/uplot/dist/uPlot.min.css" }),
);

export class Painter {
  constructor(canvas, columns) {
    this.canvas = canvas;
    this.plot = null;
    this.set(columns);
  }

  set(columns) {
    this.columns = columns;
    this.data = this.sources().map((column) => Array.from(column.subarray(0, columns.length), numberOrNull));
  }

  /** The columns in the order of the series: times, means, highs, lows. */
  sources() {
    const { times, means, lows, highs } = this.columns;
    return [times, ...means, ...(highs ?? []), ...(lows ?? [])];
  }

  append(_at, _values, since) {
    const { columns, data } = this;
    const end = columns.length - 1;
    const old = Math.max(
      0,
      data[0].findIndex((at) => at >= since),
    );
    const isNew = data[0].at(-1) !== columns.times[end];
    for (const [place, column] of this.sources().entries()) {
      if (old > 0) data[place].splice(0, old);
      if (isNew) data[place].push(0);
      data[place][data[place].length - 1] = numberOrNull(column[end]);
    }
  }

  paint(view) {
    this.view = view;
    if (!this.plot || this.plot.series.length !== this.data.length) this.build();
    const { plot } = this;
    if (plot.width !== view.width) plot.setSize({ width: view.width, height: HEIGHT });
    plot.batch(() => {
      plot.setData(this.data, false);
      plot.setScale("x", { min: view.window[0], max: view.window[1] });
    });
  }

  build() {
    const { view } = this;
    const lines = view.lines.length;
    const { font, grid, text } = view.ink;
    const axis = { font, stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const hasBands = view.banded && this.data.length === 1 + 3 * lines;
    this.plot?.destroy();
    this.canvas.hidden = true;
    this.plot = new uPlot(
      {
        width: view.width,
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        tzDate: utc,
        scales: { x: { time: true, auto: false }, y: { range: () => this.view.ends.map((end) => end / view.scale) } },
        axes: [
          { ...axis, size: 24 },
          {
            ...axis,
            size: 52,
            values: (_, splits) => splits.map((value) => Number((value * view.scale).toPrecision(4))),
          },
        ],
        series: [
          {},
          ...view.lines.map(({ colour, dash }) => ({
            stroke: colour,
            width: 1.75,
            dash: DASHES[dash],
            points: { show: false },
            gaps: (plot, series, first, last, gaps) => this.gaps(plot, series, first, last, gaps),
          })),
          ...this.data.slice(1 + lines).map(() => ({ points: { show: false }, show: hasBands })),
        ],
        bands: hasBands
          ? view.lines.map(({ colour }, line) => ({
              series: [1 + lines + line, 1 + 2 * lines + line],
              fill: `${colour}29`,
            }))
          : [],
      },
      this.data,
      this.canvas.parentElement,
    );
  }

  /** Long pauses are gaps, as well as values that are missing. */
  gaps(plot, series, first, last, gaps) {
    const times = plot.data[0];
    const longest = this.columns.gapSeconds;
    for (let i = first + 1; i <= last; i++) {
      if (times[i] - times[i - 1] <= longest || plot.data[series][i] == null) continue;
      uPlot.addGap(gaps, ...[times[i - 1], times[i]].map((at) => Math.round(plot.valToPos(at, "x", true))));
    }
    return gaps.sort((one, other) => one[0] - other[0]);
  }

  destroy() {
    this.plot?.destroy();
  }
}

const numberOrNull = (value) => (Number.isNaN(value) ? null : value);
