// Draws a chart on a canvas.
import { timeTicks, valueTicks } from "./axes.js";
import { formatShort } from "./format.js";

export const HEIGHT = 220;
export const MARGIN = { left: 52, right: 12, top: 8, bottom: 24 };
export const DASHES = { solid: [], dot: [3, 3], dash: [8, 4], dashdot: [8, 3, 3, 3] };
const mostTicks = (width) => Math.max(2, Math.min(8, Math.floor(width / 70)));

/** The mapping between times and pixels across a chart of a width: { x(at), timeAt(x), since, until, right }. */
export function timeScale([since, until], width) {
  const right = width - MARGIN.right;
  const span = right - MARGIN.left;
  return {
    x: (at) => MARGIN.left + ((at - since) / (until - since)) * span,
    timeAt: (x) => since + ((Math.min(Math.max(x, MARGIN.left), right) - MARGIN.left) / span) * (until - since),
    since,
    until,
    right,
  };
}

/** The styles of lines of { thing, quantity }: colours distinguish things and dashes quantities; of a single thing,
 * colours distinguish quantities. */
export function lineStyles(series) {
  const names = Object.keys(DASHES);
  const things = [...new Set(series.map((one) => one.thing))];
  const quantities = [...new Set(series.map((one) => one.quantity))];
  if (things.length < 2 || quantities.length > names.length) {
    return series.map((_, place) => ({ colour: place, dash: place < 8 ? "solid" : "dot" }));
  }
  return series.map((one) => ({ colour: things.indexOf(one.thing), dash: names[quantities.indexOf(one.quantity)] }));
}

/** Draw axes, lines and limits. A view is { width, window, zone, ends, scale, ticks, gaps, ink, columns, lines,
 * limits, banded }, each line with its index in the columns (place), its colour and dash, each limit with its
 * severity and the label of it. */
export function drawChart(context, view) {
  const { x, since, until, right } = timeScale(view.window, view.width);
  const [bottom, top] = view.ends;
  const foot = HEIGHT - MARGIN.bottom;
  const y = (value) => foot - ((value * view.scale - bottom) / (top - bottom)) * (foot - MARGIN.top);
  axes(context, view, { x, since, until, bottom, top, right, foot });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top - 2, right - MARGIN.left, foot - MARGIN.top + 4);
  context.clip();
  const { at, mean, low, high, gapSeconds } = view.columns;
  for (const { place, colour } of low && view.banded ? view.lines : []) {
    band(context, { at, low: low[place], high: high[place], gapSeconds, colour }, x, y);
  }
  for (const { place, colour, dash } of view.lines) {
    stroke(context, { at, mean: mean[place], gapSeconds, colour, dash }, x, y);
  }
  for (const { value, severity, label } of view.limits ?? []) {
    const isCritical = severity === "Critical";
    limitLine(
      context,
      { height: Math.round(y(value)) + 0.5, colour: view.ink[severity], text: label, isCritical },
      right,
    );
  }
  context.restore();
}

function axes(context, { ink, ticks, gaps, zone }, { x, since, until, bottom, top, right, foot }) {
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
    context.fillText(formatShort(value), MARGIN.left - 6, at);
  }
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const { at, text } of timeTicks(since, until, mostTicks(right - MARGIN.left), zone)) {
    const place = Math.round(x(at)) + 0.5;
    context.moveTo(place, MARGIN.top);
    context.lineTo(place, foot);
    context.fillText(text, Math.min(Math.max(place, MARGIN.left), right - 14), foot + 6);
  }
  context.stroke();
  // A bar along the time axis marks gaps without readings: a hole in a line alone could be missed.
  context.fillStyle = ink.grid;
  for (const gap of gaps) {
    const from = Math.max(x(gap.since), MARGIN.left);
    const to = Math.min(x(gap.until), right);
    if (to > from) context.fillRect(from, foot - 4, Math.max(1, to - from), 4);
  }
}

/** Draw the band from the lowest to the highest value of each bucket. */
function band(context, { at, low, high, gapSeconds, colour }, x, y) {
  context.fillStyle = colour;
  context.globalAlpha = 0.16;
  for (const [from, to] of segments(at, high, gapSeconds)) {
    context.beginPath();
    for (let i = from; i < to; i++) context.lineTo(x(at[i]), y(high[i]));
    for (let i = to - 1; i >= from; i--) context.lineTo(x(at[i]), y(low[i]));
    context.fill();
  }
  context.globalAlpha = 1;
}

function stroke(context, { at, mean, gapSeconds, colour, dash }, x, y) {
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.setLineDash(DASHES[dash]);
  context.beginPath();
  for (const [from, to] of segments(at, mean, gapSeconds)) {
    // A single reading between two gaps is a dot.
    if (to - from === 1) context.rect(x(at[from]) - 0.5, y(mean[from]) - 0.5, 1, 1);
    else for (let i = from; i < to; i++) context[i === from ? "moveTo" : "lineTo"](x(at[i]), y(mean[i]));
  }
  context.stroke();
  context.setLineDash([]);
}

/** Draw the line of a limit with its severity. */
function limitLine(context, { height, colour, text, isCritical }, right) {
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1;
  context.setLineDash([2, 4]);
  context.beginPath();
  context.moveTo(MARGIN.left, height);
  context.lineTo(right, height);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "left";
  // Above and below: the two are often near each other.
  context.textBaseline = isCritical && height > MARGIN.top + 14 ? "bottom" : "top";
  context.fillText(text, MARGIN.left + 4, height);
}

/** The runs of consecutive values without a gap: [[from, to], ...], `to` excluded. */
export function segments(at, values, gapSeconds) {
  const found = [];
  let from = -1;
  for (let i = 0; i < at.length; i++) {
    const here = !Number.isNaN(values[i]);
    if (from >= 0 && (!here || at[i] - at[i - 1] > gapSeconds)) {
      found.push([from, i]);
      from = -1;
    }
    if (here && from < 0) from = i;
  }
  if (from >= 0) found.push([from, at.length]);
  return found;
}
