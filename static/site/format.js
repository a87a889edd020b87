// Values, times and names as text.
import { _ } from "./language.js";

const LINK_STATES = [_("no link"), _("down"), _("starting"), _("training"), _("up")];
const SEVERITIES = { Critical: _("Critical"), Warning: _("Warning") };
// As many decimals as a reading is accurate to, always the same: figures in a column do not jump.
const DECIMALS = { "°C": 1, "%": 0, W: 0, rpm: 0, V: 2, A: 1, kWh: 2, lanes: 0, "Gb/s": 0, "": 0 };
const DURATIONS = [
  [365 * 86400, "year"],
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** A value with its unit, '41.0 °C'; 'no value' for NaN. */
export function formatValue(value, unit) {
  if (!Number.isFinite(value)) return _("no value");
  if (unit === "state") return LINK_STATES[value] ?? String(value);
  if (unit === "B/s") return `${(value / 1e9).toFixed(2)} GB/s`;
  return `${value.toFixed(DECIMALS[unit] ?? 1)} ${unit}`.trim();
}

/** The label of a severity. */
export const severityLabel = (severity) => SEVERITIES[severity] ?? severity;

/** '10 s', '15 min', '6 h', '30 d', 'year'. */
export function formatDuration(seconds) {
  const [size, unit] = DURATIONS.find(([one]) => seconds >= one && seconds % one === 0) ?? [1, "s"];
  if (unit === "year" && seconds === size) return _("year");
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}

/** A moment (seconds since 1970) in ISO 8601, UTC, to the second and without its zone. */
export const isoTime = (at) => new Date(Math.round(at) * 1000).toISOString().slice(0, 19);

/** The zone of the page's times. */
export const pageZone = () => globalThis.document?.documentElement.dataset.zone ?? "UTC";

const FIELDS = {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
};
const clocks = new Map();

/** The clock of a zone; UTC where this browser does not know it. */
function clockOf(zone) {
  if (!clocks.has(zone)) {
    try {
      clocks.set(zone, new Intl.DateTimeFormat("en", { ...FIELDS, hourCycle: "h23", timeZone: zone }));
    } catch {
      clocks.set(zone, null);
    }
  }
  return clocks.get(zone);
}

/** How far the clocks of a zone are ahead of UTC at a moment, s. */
export function zoneOffset(at, zone = pageZone()) {
  const clock = zone === "UTC" ? null : clockOf(zone);
  if (!clock) return 0;
  const whole = Math.floor(at);
  const part = Object.fromEntries(clock.formatToParts(whole * 1000).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) / 1000 - whole;
}

/** The moment at which the clocks of a zone show `wall`, seconds as if it were UTC. */
export function momentOf(wall, zone = pageZone()) {
  return wall - zoneOffset(wall - zoneOffset(wall, zone), zone);
}

/** A moment on the clocks of the page's zone, as a field of a form has it. */
export const localTime = (at) => isoTime(at + zoneOffset(at));

/** A moment as people read it, to the second, in the page's zone. */
export const formatTime = (at) => localTime(at).replace("T", " ");

/** A number of an axis, short: '12.5k', '3G'. */
export function formatShort(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4)));
}

/** A share of 1 in whole percent, at most '100 %'. */
export const formatPercent = (share) => `${Math.round(Math.min(1, share) * 100)} %`;

/** Text for where a library takes markup, as Plotly does for names. */
export const escapeMarkup = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
