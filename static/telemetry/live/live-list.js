// The rows of a list of live values: each value, or of many the range of each quantity and the first others, until all
// are asked for.
import { formatValue } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { exceededLimit } from "../alerts/limits.js";
import { seriesLabel } from "./series-labels.js";

const CALM = 40; // values
const FEW = 3; // values of one quantity, which are shown each
const QUANTITIES = {
  temperature_celsius: _("Temperatures"),
  power_watts: _("Powers"),
  voltage_volts: _("Voltages"),
  current_amperes: _("Currents"),
  energy_kilowatt_hours: _("Energies"),
  fan_rpm: _("Fan speeds"),
  fan_percent: _("Fan speeds"),
};

/** The rows of these series: { label, unit, series }. */
export function rowsOf(shown, all) {
  const rows = new Map();
  for (const one of shown) {
    const quantity = QUANTITIES[one.quantity];
    const key = quantity && !all && shown.length > CALM ? `${one.quantity} ${one.unit}` : one.key;
    const row = rows.get(key) ?? { label: quantity, unit: one.unit, series: [] };
    row.series.push(one);
    rows.set(key, row);
  }
  const each = (one) => ({ label: seriesLabel(one.label), unit: one.unit, series: [one] });
  const made = [...rows.values()].flatMap((row) =>
    row.series.length > FEW
      ? [{ ...row, label: _("{quantity} ({count})", { quantity: row.label, count: row.series.length }) }]
      : row.series.map(each),
  );
  return all ? made : made.slice(0, CALM);
}

/** The lowest and the highest value of a row of several, and the one beyond its limit, if any: { words, limit }. */
export function rangeOf({ unit, series }, value, limitsOf) {
  const known = series.map(({ key }) => value(key)).filter(Number.isFinite);
  if (known.length === 0) return { words: formatValue(Number.NaN, unit), limit: null };
  const range = `${formatValue(Math.min(...known), unit)} – ${formatValue(Math.max(...known), unit)}`;
  const beyond = series
    .map((one) => ({ one, limit: exceededLimit(value(one.key), limitsOf(one.key)) }))
    .filter(({ limit }) => limit);
  const worst = beyond.find(({ limit }) => limit.severity === "Critical") ?? beyond[0];
  if (!worst) return { words: range, limit: null };
  return {
    words: `${range}; ${seriesLabel(worst.one.label)}: ${formatValue(value(worst.one.key), unit)}`,
    limit: worst.limit,
  };
}
