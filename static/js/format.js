// How long something is, in words.
const UNITS = [
  [365 * 86400, "year"],
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** '10 s', '15 min', '6 h', '30 d', 'year'. */
export function step(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds >= one && seconds % one === 0) ?? [1, "s"];
  if (unit === "year" && seconds === size) return unit;
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}
