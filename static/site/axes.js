// Axes: where their ends and ticks are, and the labels of those. Times are seconds since 1970.
import { momentOf, zoneOffset } from "./format.js";

const STEPS = [
  [1, [1, 2, 5, 10, 15, 30]],
  [60, [1, 2, 5, 10, 15, 30]],
  [3600, [1, 2, 3, 6, 12]],
  [86400, [1, 2, 7, 14, 30, 91, 182, 365]],
].flatMap(([unit, counts]) => counts.map((count) => count * unit));
const two = (number) => String(number).padStart(2, "0");

/** The ticks of a time axis, at most `most`: [{ at, text }]. The label of a tick at midnight is its day. */
export function timeTicks(since, until, most = 6, zone = "UTC") {
  const step = STEPS.find((one) => (until - since) / one <= most) ?? STEPS.at(-1);
  const ticks = [];
  const offset = zoneOffset(since, zone);
  for (let wall = Math.ceil((since + offset) / step) * step; ; wall += step) {
    // Up to an hour in even steps; longer ones at the same times of day, also after a change of the clocks.
    const at = step > 3600 ? momentOf(wall, zone) : wall - offset;
    if (at > until) return ticks;
    if (at >= since) ticks.push({ at, text: tickLabel(at + zoneOffset(at, zone), step) });
  }
}

/** The label of a tick, where the clocks show `wall`. */
function tickLabel(wall, step) {
  const time = new Date(wall * 1000);
  const day = `${two(time.getUTCMonth() + 1)}-${two(time.getUTCDate())}`;
  if (step >= 30 * 86400) return `${time.getUTCFullYear()}-${day}`;
  if (step >= 86400 || wall % 86400 === 0) return day;
  const minutes = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}`;
  return step < 60 ? `${minutes}:${two(time.getUTCSeconds())}` : minutes;
}

/** The end of an axis at least as far out as `value`, in steps of 1, 2, 5 x 10^n: it stays while values vary a little.
 * */
export function roundedUp(value) {
  if (!(value > 0)) return 0;
  const magnitude = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((one) => one * magnitude).find((one) => one >= value * 1.05) ?? 20 * magnitude;
}

/** The ticks of an axis of values, some five of them, at round numbers. */
export function valueTicks(bottom, top) {
  const rough = (top - bottom) / 4;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * magnitude).find((one) => one >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(bottom / step - 1e-9) || 0; n * step <= top * (1 + 1e-9); n++) ticks.push(n * step);
  return ticks;
}

/** The ends [bottom, top] of an axis for values from `low` to `high`, which include 0. */
export const axisEnds = (low, high, top) => [-roundedUp(-low) || 0, top ?? (roundedUp(high) || 1)];

const KINDS = {
  "B/s": { unit: "GB/s", scale: 1e-9 },
  "%": { top: 100 },
  lanes: { top: 17, ticks: [0, 4, 8, 16] },
  state: { top: 4, ticks: [0, 1, 2, 3, 4] },
};

/** The axis of values of a unit: { unit, scale, top, ticks }; values are multiplied by the scale. */
export const axisOf = (unit) => ({ unit, ...KINDS[unit] });
