import assert from "node:assert/strict";
import test from "node:test";

import { axisEnds, axisOf, roundedUp, timeTicks, valueTicks } from "../../static/site/axes.js";

const at = (text) => Date.parse(`${text}Z`) / 1000;
const labels = (since, until, most) => timeTicks(at(since), at(until), most).map(({ text }) => text);

test("ticks of time are at round moments, and no more than asked for", () => {
  assert.deepEqual(labels("2026-03-01T10:00:30", "2026-03-01T10:10:30", 6), [
    "10:02",
    "10:04",
    "10:06",
    "10:08",
    "10:10",
  ]);
  for (const seconds of [7, 61, 600, 3600, 90_000, 1e6, 4e7]) {
    assert.ok(timeTicks(0.5, 0.5 + seconds, 6).length <= 7, `${seconds} s`);
  }
});

test("labels have seconds below a minute, days at midnight, and years over months", () => {
  assert.deepEqual(labels("2026-03-01T10:00:00", "2026-03-01T10:00:20", 4), [
    "10:00:00",
    "10:00:05",
    "10:00:10",
    "10:00:15",
    "10:00:20",
  ]);
  assert.deepEqual(labels("2026-03-01T12:00:00", "2026-03-02T12:00:00", 3), ["12:00", "03-02", "12:00"]);
  assert.match(labels("2025-01-01T00:00:00", "2026-01-01T00:00:00", 4)[0], /^2025-\d\d-\d\d$/);
});

test("days begin at midnight of the zone, also after the clocks were set", () => {
  const ticks = (since, until, most, zone) =>
    timeTicks(at(since), at(until), most, zone).map((one) => [one.at, one.text]);
  assert.deepEqual(ticks("2026-03-28T12:00:00", "2026-03-30T12:00:00", 4, "Europe/Berlin"), [
    [at("2026-03-28T23:00:00"), "03-29"],
    [at("2026-03-29T10:00:00"), "12:00"],
    [at("2026-03-29T22:00:00"), "03-30"],
    [at("2026-03-30T10:00:00"), "12:00"],
  ]);
  // 02:00 comes twice.
  assert.deepEqual(
    ticks("2026-10-24T23:30:00", "2026-10-25T02:30:00", 4, "Europe/Berlin").map(([, text]) => text),
    ["02:00", "02:00", "03:00"],
  );
  assert.deepEqual(ticks("2026-03-01T00:00:00", "2026-03-01T02:00:00", 2, "Asia/Kolkata"), [
    [at("2026-03-01T00:30:00"), "06:00"],
    [at("2026-03-01T01:30:00"), "07:00"],
  ]);
});

test("the end of an axis leaves a margin of 5 % and is 1, 2 or 5 times a power of 10", () => {
  assert.deepEqual([0.95, 0.96, 1.9, 1.95, 4.8, 9.6].map(roundedUp), [1, 2, 2, 5, 10, 20]);
  assert.deepEqual([0, -3, NaN].map(roundedUp), [0, 0, 0]);
});

test("an axis includes 0, goes below it only for negative values, and is never empty", () => {
  assert.deepEqual(axisEnds(0, 41), [0, 50]);
  assert.deepEqual(axisEnds(-3, 41), [-5, 50]);
  assert.deepEqual(axisEnds(0, 0), [0, 1]);
  assert.deepEqual(axisEnds(0, 41, 100), [0, 100]);
});

test("ticks of values are round, and reach both ends", () => {
  assert.deepEqual(valueTicks(0, 100), [0, 25, 50, 75, 100]);
  assert.deepEqual(valueTicks(0, 2), [0, 0.5, 1, 1.5, 2]);
  assert.deepEqual(valueTicks(-5, 5), [-5, -2.5, 0, 2.5, 5]);
});

test("a unit has its axis, any other one follows its values", () => {
  assert.deepEqual(axisOf("B/s"), { unit: "GB/s", scale: 1e-9 });
  assert.equal(axisOf("%").top, 100);
  assert.deepEqual(axisOf("W"), { unit: "W" });
});
