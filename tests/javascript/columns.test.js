import assert from "node:assert/strict";
import test from "node:test";

import { Columns } from "../../static/site/columns.js";

const all = () => true;

function filled(...points) {
  const columns = new Columns(points[0].length - 1);
  for (const [at, ...values] of points) columns.append(at, values, -Infinity);
  return columns;
}

test("readings are appended in order, and older ones are refused", () => {
  const columns = filled([10, 1, 2], [11, 3, NaN]);
  assert.equal(columns.append(11, [9, 9], 0), false);
  assert.equal(columns.append(5, [9, 9], 0), false);
  assert.deepEqual([...columns.at], [10, 11]);
  assert.deepEqual([...columns.mean[0]], [1, 3]);
  assert.deepEqual([...columns.mean[1]], [2, NaN]);
  assert.equal(columns.newest, 11);
});

test("points before the range are dropped, and the arrays grow as far as they must", () => {
  const columns = new Columns(1);
  for (let at = 0; at < 1000; at++) columns.append(at, [at], at - 600);
  assert.equal(columns.length, 601);
  assert.deepEqual([columns.at[0], columns.newest, columns.mean[0][0]], [399, 999, 399]);
  assert.ok(columns.times.length <= 1024);
});

test("without points there is no newest and no nearest", () => {
  const columns = new Columns(2);
  assert.ok(Number.isNaN(columns.newest));
  assert.equal(columns.nearest(5), -1);
  assert.deepEqual(columns.extent(all), [0, 0]);
});

test("the nearest point is found, also before the first and after the last", () => {
  const columns = filled([10, 0], [20, 0], [40, 0]);
  assert.deepEqual(
    [-5, 14, 15, 16, 31, 99].map((at) => columns.nearest(at)),
    [0, 0, 0, 1, 2, 2],
  );
});

test("the extent is of shown lines alone, and includes 0", () => {
  const columns = filled([1, 5, -3], [2, NaN, 100]);
  assert.deepEqual(columns.extent(all), [-3, 100]);
  assert.deepEqual(
    columns.extent((line) => line === 0),
    [0, 5],
  );
});

test("an answer of the server has its bands, and null is no value", () => {
  const columns = Columns.from([0, 60], 60, [{ mean: [1, null], low: [0, null], high: [4, null] }]);
  assert.deepEqual([...columns.mean[0]], [1, NaN]);
  assert.deepEqual(columns.extent(all), [0, 4]);
  assert.equal(columns.gapSeconds, 90);
});

test("where a line has no band there are none", () => {
  const columns = Columns.from([0], 60, [{ mean: [1], low: [0], high: [2] }, { mean: [1] }]);
  assert.equal(columns.low, null);
  assert.equal(columns.high, null);
});

test("live readings of one bucket become its mean, lowest and highest", () => {
  const columns = Columns.from([0], 60, [{ mean: [10], low: [5], high: [15] }]);
  for (const [at, value] of [
    [60, 1],
    [61, 2],
    [62, 6],
  ]) {
    assert.equal(columns.append(at, [value], 0), true);
  }
  assert.deepEqual([...columns.at], [0, 60]);
  assert.equal(columns.mean[0][1], 3);
  assert.deepEqual([columns.low[0][1], columns.high[0][1]], [1, 6]);
  assert.equal(columns.append(59, [1], 0), false);
});

test("a live reading weighs as little in a bucket that the server has filled as one second of it", () => {
  const columns = Columns.from([0], 60, [{ mean: [10] }]);
  columns.append(49, [60], 0);
  assert.equal(columns.mean[0][0], 11);
});

test("a bucket begins with its first value, and stays where there is none", () => {
  const columns = Columns.from([0], 10, [{ mean: [null], low: [null], high: [null] }]);
  columns.append(3, [NaN], 0);
  assert.ok(Number.isNaN(columns.mean[0][0]));
  columns.append(4, [7], 0);
  assert.deepEqual([columns.mean[0][0], columns.low[0][0], columns.high[0][0]], [7, 7, 7]);
});

test("its state makes the same columns elsewhere", () => {
  const columns = filled([1, 2], [2, 3]);
  const copy = Object.assign(new Columns(0), structuredClone(columns.state()));
  for (const one of [columns, copy]) one.append(3, [4], 2);
  assert.deepEqual([...copy.at], [...columns.at]);
  assert.deepEqual([...copy.mean[0]], [3, 4]);
});
