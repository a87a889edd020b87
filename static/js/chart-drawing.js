// What a chart looks like, on a canvas.
import { short, timeTicks, valueTicks } from "./axes.js";

export const HEIGHT = 220;
export const MARGIN = { left: 52, right: 12, top: 8, bottom: 24 };
export const DASHES = { solid: [], dot: [3, 3], dash: [8, 4], dashdot: [8, 3, 3, 3] };
const atMost = (width) => Math.max(2, Math.min(8, Math.floor(width / 70)));

/** Where times are, across a chart so wide: { x(at), since, until, right }. */
export function across([since, until], width) {
  const right = width - MARGIN.right;
  return { x: (at) => MARGIN.left + ((at - since) / (until - since)) * (right - MARGIN.left), since, until, right };
}

/** Draw axes and lines. A view is { width, window, ends, scale, ticks, gaps, ink, columns, lines, banded }, each line with
 * its place in the columns, its colour and dash. */
export function sketch(context, view) {
  const { x, since, until, right } = across(view.window, view.width);
  const [bottom, top] = view.ends;
  const foot = HEIGHT - MARGIN.bottom;
  const y = (value) => foot - ((value * view.scale - bottom) / (top - bottom)) * (foot - MARGIN.top);
  axes(context, view, { x, since, until, bottom, top, right, foot });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top - 2, right - MARGIN.left, foot - MARGIN.top + 4);
  context.clip();
  const { at, mean, low, high, pause } = view.columns;
  for (const { place, colour } of low && view.banded ? view.lines : []) {
    band(context, { at, low: low[place], high: high[place], pause, colour }, x, y);
  }
  for (const { place, colour, dash } of view.lines)
    stroke(context, { at, mean: mean[place], pause, colour, dash }, x, y);
  context.restore();
}

function axes(context, { ink, ticks, gaps }, { x, since, until, bottom, top, right, foot }) {
  context.font = ink.font;
  context.lineWidth = 1;
  context.strokeStyle = ink.grid;
  context.fillStyle = ink.text;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.beginPath();
  for (const value of ticks ?? valueTicks(bottom, top)) {
    const at = Math.round(foot - ((value - bottom) / (top - bottom)) * (foot - MARGIN.top)) + 0.5;
    context.moveTo(MARGIN.left, at);
    context.lineTo(right, at);
    context.fillText(short(value), MARGIN.left - 6, at);
  }
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const { at, text } of timeTicks(since, until, atMost(right - MARGIN.left))) {
    const place = Math.round(x(at)) + 0.5;
    context.moveTo(place, MARGIN.top);
    context.lineTo(place, foot);
    context.fillText(text, Math.min(Math.max(place, MARGIN.left), right - 14), foot + 6);
  }
  context.stroke();
  // Where nothing was read, a line along the foot says so: a hole in a line alone could be missed.
  context.fillStyle = ink.grid;
  for (const gap of gaps) {
    const from = Math.max(x(gap.since), MARGIN.left);
    const to = Math.min(x(gap.until), right);
    if (to > from) context.fillRect(from, foot - 4, Math.max(1, to - from), 4);
  }
}

/** From the lowest to the highest of each bucket. */
function band(context, { at, low, high, pause, colour }, x, y) {
  context.fillStyle = colour;
  context.globalAlpha = 0.16;
  for (const [from, to] of pieces(at, high, pause)) {
    context.beginPath();
    for (let i = from; i < to; i++) context.lineTo(x(at[i]), y(high[i]));
    for (let i = to - 1; i >= from; i--) context.lineTo(x(at[i]), y(low[i]));
    context.fill();
  }
  context.globalAlpha = 1;
}

function stroke(context, { at, mean, pause, colour, dash }, x, y) {
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.setLineDash(DASHES[dash]);
  context.beginPath();
  for (const [from, to] of pieces(at, mean, pause)) {
    // One reading between two gaps is no line, and is there all the same.
    if (to - from === 1) context.rect(x(at[from]) - 0.5, y(mean[from]) - 0.5, 1, 1);
    else for (let i = from; i < to; i++) context[i === from ? "moveTo" : "lineTo"](x(at[i]), y(mean[i]));
  }
  context.stroke();
  context.setLineDash([]);
}

/** The runs of values that follow each other without a gap: [[from, to], ...]. */
function pieces(at, values, pause) {
  const found = [];
  let from = -1;
  for (let i = 0; i < at.length; i++) {
    const here = !Number.isNaN(values[i]);
    if (from >= 0 && (!here || at[i] - at[i - 1] > pause)) {
      found.push([from, i]);
      from = -1;
    }
    if (here && from < 0) from = i;
  }
  if (from >= 0) found.push([from, at.length]);
  return found;
}
