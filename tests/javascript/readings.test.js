import assert from "node:assert/strict";
import test from "node:test";

import { busierLoad, combine, LineValues, linkLoad, loadStep } from "../../static/telemetry/live/readings.js";

const frame = (values, at = 0, chassis = 1) => ({ chassis, at, value: (key) => values[key] ?? NaN });
const port = { "port/5/rx_bytes_per_second": 1e9, "port/5/tx_bytes_per_second": 4e9, "port/5/link_speed_gbps": 64 };

test("the load of a link is its share of the capacity, that of its busier direction the greater", () => {
  assert.equal(linkLoad(5, "rx")(frame(port)), 0.125);
  assert.equal(busierLoad(5)(frame(port)), 0.5);
  assert.ok(Number.isNaN(linkLoad(6, "rx")(frame(port))));
});

test("loads are shown in six steps", () => {
  assert.deepEqual([NaN, 0, 0.005, 0.006, 0.2, 0.79, 0.8, 3].map(loadStep), [0, 0, 0, 1, 2, 4, 5, 5]);
});

test("values are combined as the line has it", () => {
  assert.deepEqual(
    ["highest", "lowest", "mean", "sum"].map((how) => combine(how, [1, 2, 6])),
    [6, 1, 3, 9],
  );
  assert.ok(Number.isNaN(combine("sum", [])));
});

const line = (...parts) => ({ combine: "sum", parts: parts.map(([chassis, key]) => ({ chassis_id: chassis, key })) });

test("parts of another chassis keep their newest value for three seconds", () => {
  const values = new LineValues();
  const both = line([1, "a"], [2, "b"]);
  assert.equal(values.of(both, frame({ a: 1 }, 10, 1)), 1);
  assert.equal(values.of(both, frame({ b: 5 }, 11, 2)), 6);
  assert.equal(values.of(both, frame({ a: 2 }, 12, 1)), 7);
  assert.equal(values.of(both, frame({ a: 3 }, 14, 1)), 3);
});

test("a part that is not measured leaves the others", () => {
  assert.equal(new LineValues().of(line([1, "a"], [1, "gone"]), frame({ a: 4 })), 4);
});

test("a counter becomes a rate, and a reset is a gap", () => {
  const values = new LineValues();
  const errors = line([1, "port/5/errors/rate"]);
  const rates = [
    [0, 100],
    [2, 300],
    [2, 300],
    [3, 50],
    [4, 80],
  ].map(([at, total]) => values.of(errors, frame({ "port/5/errors": total }, at)));
  assert.deepEqual(rates, [NaN, 100, 100, NaN, 30]);
});
