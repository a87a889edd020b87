// Paints charts, in a worker of its own where the browser can: to draw eight charts in software takes the thread that
// draws them some 30 ms, which the page's own must not lack each second. This file is both sides of it. The worker has the
// numbers too, and is told what is added to them: to hand over all of them each second would cost the page as much.

import { HEIGHT, sketch } from "./chart-drawing.js";
import { Columns } from "./columns.js";

function paint(context, view) {
  const { canvas } = context;
  const [width, height] = [Math.round(view.width * view.ratio), Math.round(HEIGHT * view.ratio)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.clearRect(0, 0, view.width, HEIGHT);
  sketch(context, view);
}

let worker = null;
let made = 0;

/** What a canvas is painted by. */
export class Painter {
  constructor(canvas, columns) {
    this.columns = columns;
    if (!canvas.transferControlToOffscreen || typeof Worker === "undefined") {
      this.context = canvas.getContext("2d");
      return;
    }
    worker ??= new Worker(import.meta.url, { type: "module" });
    this.number = made += 1;
    const offscreen = canvas.transferControlToOffscreen();
    // With its lines: what comes live may come before what the server has.
    worker.postMessage({ number: this.number, canvas: offscreen, columns: columns.copy() }, [offscreen]);
  }

  /** Take other columns. */
  set(columns) {
    this.columns = columns;
    this.tell({ columns: columns.copy() });
  }

  /** Take what was added to the columns, and what is older than `since` away. */
  append(at, values, since) {
    this.tell({ at, values, since });
  }

  /** Paint a view without its columns (see chart-drawing.js, and `ratio`). */
  paint(view) {
    if (this.context) paint(this.context, { ...view, columns: this.columns });
    else this.tell({ view });
  }

  end() {
    this.tell({});
  }

  tell(message) {
    if (!this.context) worker.postMessage({ number: this.number, ...message });
  }
}

// The side of the worker.
if (typeof document === "undefined") {
  const charts = new Map();
  addEventListener("message", ({ data: { number, canvas, columns, at, values, since, view } }) => {
    const chart = charts.get(number);
    const taken = columns && Object.assign(new Columns(0), columns);
    if (canvas) charts.set(number, { context: canvas.getContext("2d"), columns: taken });
    else if (taken) chart.columns = taken;
    else if (values) chart.columns.append(at, values, since);
    else if (view) paint(chart.context, { ...view, columns: chart.columns });
    else charts.delete(number);
  });
}
