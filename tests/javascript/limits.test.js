import assert from "node:assert/strict";
import test from "node:test";

import { exceededLimit, limitWords } from "../../static/telemetry/alerts/limits.js";

const above = (value, severity) => ({ value, severity, is_upper: true });
const HEAT = [above(90, "Critical"), above(83, "Warning")];
const SPEED = [{ value: 1000, severity: "Critical", is_upper: false }];

test("a value has the limit that it is beyond, or would be first", () => {
  assert.equal(limitWords(67, HEAT), " of 83");
  assert.equal(limitWords(84, HEAT), " of 83");
  assert.equal(limitWords(95, HEAT), " of 90");
  assert.equal(limitWords(900, SPEED), ", below 1000");
  for (const [value, limits] of [
    [67, []],
    [5000, SPEED],
    [NaN, HEAT],
  ]) {
    assert.equal(limitWords(value, limits), "");
  }
});

test("the worst limit counts, and a value at its limit is not beyond it", () => {
  assert.equal(exceededLimit(95, [...HEAT].reverse()).severity, "Critical");
  assert.equal(exceededLimit(84, HEAT).severity, "Warning");
  for (const value of [83, NaN]) assert.equal(exceededLimit(value, HEAT), null);
});
