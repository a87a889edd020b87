// When charts are drawn: visible ones at each reading, a few in a frame; others when the browser is idle, so that they
// are complete when the page is printed or captured.
import { onThemeChange } from "./theme-colours.js";

const MOST_A_FRAME = 8; // charts drawn in one animation frame
const REPEAT_EVERY = 10_000; // ms
const idle = globalThis.requestIdleCallback ?? ((call) => setTimeout(call, 200));
export const charts = new Set();
const dirty = new Set();
let request = 0; // of an animation frame
let isScheduled = false;

/** Draw a chart in the next animation frame that has room. */
export function scheduleDraw(chart) {
  dirty.add(chart);
  if (!request) request = requestAnimationFrame(drawSomeCharts);
}

function drawSomeCharts() {
  request = 0;
  let room = MOST_A_FRAME;
  for (const chart of dirty) {
    if (room-- === 0) break;
    dirty.delete(chart);
    chart.paint();
  }
  if (dirty.size > 0) request = requestAnimationFrame(drawSomeCharts);
}

/** When the browser is idle, load the data of charts out of view, one after the other, and draw them. */
export function scheduleIdle() {
  if (isScheduled) return;
  isScheduled = true;
  // After a frame the visible charts are known, and loading.
  requestAnimationFrame(() => idle(loadAll, { timeout: 2000 }));
}

async function loadAll() {
  try {
    for (const chart of charts) if (!chart.loading && !document.hidden) await chart.load();
  } finally {
    isScheduled = false;
  }
  drawOutdated();
}

/** Draw the charts with data that is not drawn yet. */
function drawOutdated() {
  if (!document.hidden) for (const chart of charts) if (!chart.isDrawn) scheduleDraw(chart);
}

/** Load charts again, visible ones immediately. */
export function reload(those) {
  for (const chart of those) {
    chart.loading = null;
    if (chart.visible) chart.load();
  }
  scheduleIdle();
}

export function register(chart) {
  charts.add(chart);
  visibilityObserver.observe(chart.figure);
  resizeObserver.observe(chart.place);
  scheduleIdle();
}

export function unregister(chart) {
  charts.delete(chart);
  dirty.delete(chart);
  visibilityObserver.unobserve(chart.figure);
  resizeObserver.unobserve(chart.place);
}

// A chart that scrolls into view loads the data it missed.
const visibilityObserver = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = [...charts].find(({ figure }) => figure === target);
    if (!chart || chart.visible === isIntersecting) continue;
    chart.visible = isIntersecting;
    if (isIntersecting) chart.load();
  }
});
const resizeObserver = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = [...charts].find(({ place }) => place === target);
    if (!chart) continue;
    chart.width = Math.floor(contentRect.width);
    chart.draw();
  }
  scheduleIdle();
});
onThemeChange(() => {
  for (const chart of charts) chart.draw();
  scheduleIdle();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  for (const chart of charts) if (chart.visible) chart.load();
  scheduleIdle();
});
setInterval(() => {
  scheduleIdle(); // retries failed loads
  for (const chart of charts) if (chart.visible && !document.hidden) chart.label();
}, REPEAT_EVERY);
