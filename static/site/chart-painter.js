// Paints charts, in a worker where the browser can: drawing eight charts in software takes some 30 ms, which the main
// thread cannot spare each second. This file is both sides of it. The worker has a copy of the columns and receives
// additions: sending all columns each second would cost the main thread as much.
import { drawChart, HEIGHT } from "./chart-drawing.js";
import { Columns } from "./columns.js";

function paint(context, view) {
  const { canvas } = context;
  const [width, height] = [Math.round(view.width * view.ratio), Math.round(HEIGHT * view.ratio)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.clearRect(0, 0, view.width, HEIGHT);
  drawChart(context, view);
}

let worker = null;
let count = 0;

/** Paints one canvas. */
export class Painter {
  constructor(canvas, columns) {
    this.columns = columns;
    if (!canvas.transferControlToOffscreen || typeof Worker === "undefined") {
      this.context = canvas.getContext("2d");
      return;
    }
    worker ??= new Worker(import.meta.url, { type: "module" });
    this.number = count += 1;
    const offscreen = canvas.transferControlToOffscreen();
    // With its lines: live readings may arrive before the history.
    worker.postMessage({ number: this.number, canvas: offscreen, columns: columns.state() }, [offscreen]);
  }

  /** Replace the columns. */
  set(columns) {
    this.columns = columns;
    this.post({ columns: columns.state() });
  }

  /** Repeat an append in the worker's copy (see Columns.append). */
  append(at, values, since) {
    this.post({ at, values, since });
  }

  /** Paint a view without its columns (see chart-drawing.js, and `ratio`). */
  paint(view) {
    if (this.context) paint(this.context, { ...view, columns: this.columns });
    else this.post({ view });
  }

  destroy() {
    this.post({});
  }

  post(message) {
    if (!this.context) worker.postMessage({ number: this.number, ...message });
  }
}

// The side of the worker.
if (typeof document === "undefined") {
  const charts = new Map();
  addEventListener("message", ({ data: { number, canvas, columns, at, values, since, view } }) => {
    const chart = charts.get(number);
    const replacement = columns && Object.assign(new Columns(0), columns);
    if (canvas) charts.set(number, { context: canvas.getContext("2d"), columns: replacement });
    else if (replacement) chart.columns = replacement;
    else if (values) chart.columns.append(at, values, since);
    else if (view) paint(chart.context, { ...view, columns: chart.columns });
    else charts.delete(number);
  });
}
