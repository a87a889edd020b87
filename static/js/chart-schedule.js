// When charts are drawn: those in sight at each reading, some in a frame; those out of sight when there is time, so that
// who prints the page, or takes a picture of all of it, finds them drawn.
import { forgetColours } from "./theme-colours.js";

const MOST_A_FRAME = 8; // charts that are drawn in one animation frame; others wait for the next
const NOW_AND_THEN = 10_000; // ms
const idle = globalThis.requestIdleCallback ?? ((call) => setTimeout(call, 200));
export const charts = new Set();
const dirty = new Set();
let asked = 0;
let waiting = false;

/** Have a chart drawn in the next frame that has room. */
export function drawSoon(chart) {
  dirty.add(chart);
  if (!asked) asked = requestAnimationFrame(drawSome);
}

function drawSome() {
  asked = 0;
  let room = MOST_A_FRAME;
  for (const chart of dirty) {
    if (room-- === 0) break;
    dirty.delete(chart);
    chart.paint();
  }
  if (dirty.size > 0) asked = requestAnimationFrame(drawSome);
}

/** Once there is time, ask the server for what charts out of sight lack, one after the other, and draw them. */
export function whenIdle() {
  if (waiting) return;
  waiting = true;
  // After a frame it is known what is in sight, and was asked for.
  requestAnimationFrame(() => idle(fillAll, { timeout: 2000 }));
}

async function fillAll() {
  try {
    for (const chart of charts) if (!chart.filled && !document.hidden) await chart.fill();
  } finally {
    waiting = false;
  }
  drawOld();
}

/** Draw what shows less than it has. */
function drawOld() {
  if (!document.hidden) for (const chart of charts) if (!chart.fresh) drawSoon(chart);
}

/** Have charts ask the server anew: at once those in sight. */
export function refill(those) {
  for (const chart of those) {
    chart.filled = null;
    if (chart.visible) chart.fill();
  }
  whenIdle();
}

export function enter(chart) {
  charts.add(chart);
  watcher.observe(chart.figure);
  sizes.observe(chart.place);
  whenIdle();
}

export function leave(chart) {
  charts.delete(chart);
  dirty.delete(chart);
  watcher.unobserve(chart.figure);
  sizes.unobserve(chart.place);
}

// What was missed while a chart was out of sight is asked of the server.
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = [...charts].find(({ figure }) => figure === target);
    if (!chart || chart.visible === isIntersecting) continue;
    chart.visible = isIntersecting;
    if (isIntersecting) chart.fill();
  }
});
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = [...charts].find(({ place }) => place === target);
    if (!chart) continue;
    chart.width = Math.floor(contentRect.width);
    chart.draw();
  }
  whenIdle();
});
const repaint = () => {
  forgetColours();
  for (const chart of charts) chart.draw();
  whenIdle();
};
document.addEventListener("falconweb:theme", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  for (const chart of charts) if (chart.visible) chart.fill();
  whenIdle();
});
setInterval(() => {
  whenIdle(); // asks anew for what the server did not give
  for (const chart of charts) if (chart.visible && !document.hidden) chart.label();
}, NOW_AND_THEN);
