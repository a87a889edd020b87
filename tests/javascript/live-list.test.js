import assert from "node:assert/strict";
import test from "node:test";

import { rangeOf, rowsOf } from "../../static/telemetry/live/live-list.js";

const sensor = (number) => ({
  key: `t${number}`,
  quantity: "temperature_celsius",
  unit: "°C",
  label: `Sensor ${number}`,
});
const many = Array.from({ length: 45 }, (_, number) => sensor(number));
const others = [
  { key: "u", quantity: "utilisation_percent", unit: "%", label: "Utilisation" },
  { key: "p", quantity: "power_watts", unit: "W", label: "Total power" },
];

test("few values are shown each, many as the range of each quantity until all are asked for", () => {
  assert.equal(rowsOf([...many.slice(0, 30), ...others], false).length, 32);
  const rows = rowsOf([...many, ...others], false);
  assert.deepEqual(
    rows.map(({ label, series }) => [label, series.length]),
    [
      ["Temperatures (45)", 45],
      ["Utilisation", 1],
      ["Total power", 1],
    ],
  );
  assert.equal(rowsOf([...many, ...others], true).length, 47);
  const strange = many.map((one) => ({ ...one, quantity: "extra" }));
  assert.deepEqual([rowsOf(strange, false).length, rowsOf(strange, true).length], [40, 45]);
});

test("a range says its lowest and highest value, and names the one beyond its limit", () => {
  const [row] = rowsOf(many, false);
  const value = (key) => (key === "t9" ? 90 : key === "t1" ? Number.NaN : 30);
  const limit = { value: 85, is_upper: true, severity: "Critical" };
  const none = rangeOf(row, value, () => []);
  assert.deepEqual(none, { words: "30.0 °C – 90.0 °C", limit: null });
  const beyond = rangeOf(row, value, (key) => (key === "t9" ? [limit] : []));
  assert.equal(beyond.words, "30.0 °C – 90.0 °C; Sensor 9: 90.0 °C");
  assert.equal(beyond.limit, limit);
  assert.equal(
    rangeOf(
      row,
      () => Number.NaN,
      () => [],
    ).words,
    "no value",
  );
});
