// Axes: where ticks are and what they say. Time is UTC throughout; seconds since 1970.
const STEPS = [
  1,
  2,
  5,
  10,
  15,
  30,
  60,
  120,
  300,
  600,
  900,
  1800,
  3600,
  7200,
  10800,
  21600,
  43200,
  86400,
  2 * 86400,
  7 * 86400,
  14 * 86400,
  30 * 86400,
  91 * 86400,
  182 * 86400,
  365 * 86400,
];
const two = (number) => String(number).padStart(2, "0");

/** The ticks of a time axis, at most `most`: [{ at, text }]. A tick at midnight says the day. */
export function timeTicks(since, until, most = 6) {
  const step = STEPS.find((one) => (until - since) / one <= most) ?? STEPS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(since / step) * step; at <= until; at += step) ticks.push({ at, text: tickText(at, step) });
  return ticks;
}

function tickText(at, step) {
  const time = new Date(at * 1000);
  const day = `${two(time.getUTCMonth() + 1)}-${two(time.getUTCDate())}`;
  if (step >= 30 * 86400) return `${time.getUTCFullYear()}-${day}`;
  if (step >= 86400 || at % 86400 === 0) return day;
  const minutes = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}`;
  return step < 60 ? `${minutes}:${two(time.getUTCSeconds())}` : minutes;
}

/** The exact time, as it stands on hover: to the second, in UTC. */
export const exact = (at) => `${new Date(Math.round(at) * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** The end of an axis at least as far out as `value`, in steps of 1, 2, 5 x 10^n: it does not breathe with each value. */
export function stepped(value) {
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
  for (let n = Math.ceil(bottom / step - 1e-9); n * step <= top * (1 + 1e-9); n++) ticks.push(n * step);
  return ticks;
}

/** A value of an axis, short. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4)));
}

const KINDS = {
  "B/s": { unit: "GB/s", scale: 1e-9 },
  "%": { top: 100 },
  lanes: { top: 17, ticks: [0, 4, 8, 16] },
  state: { top: 4, ticks: [0, 1, 2, 3, 4] },
};

/** How values of a unit are shown in charts: { unit, scale, top, ticks }. */
export const shownAs = (unit) => ({ unit, ...KINDS[unit] });
