import assert from "node:assert/strict";
import test from "node:test";

import {
  barPositions,
  decades,
  formatDigits,
  GAP,
  letterOf,
  tickLabels,
  wrapMarkup,
  wrapWords,
} from "../../static/benchmarks/figures/figure-layout.js";

test("lines have letters, two after Z", () => {
  assert.deepEqual([0, 25, 26, 27, 52].map(letterOf), ["A", "Z", "AA", "AB", "BA"]);
});

test("a logarithmic axis has 1, 2 and 5 of each power", () => {
  assert.deepEqual(decades([3, 70]), [1, 2, 5, 10, 20, 50]);
});

test("numbers have four digits, whole ones all", () => {
  assert.deepEqual([123456, 1 / 3, 1234.56].map(formatDigits), ["123456", "0.3333", "1235"]);
});

test("long names are wrapped at words, and are no markup", () => {
  assert.deepEqual(wrapWords("a long name of a device", 8), ["a long", "name of", "a device"]);
  assert.deepEqual(wrapWords("unbreakable", 4), ["unbreakable"]);
  assert.equal(wrapMarkup("<b> & c", 4), "&lt;b><br>&amp; c");
});

test("bars are side by side, and a place that lacks one leaves no room for it", () => {
  const { at, ticks, end } = barPositions(["x", "y", "z"], (place) => ({ x: ["a", "b"], y: [], z: ["b"] })[place]);
  assert.deepEqual([at.get("a\nx"), at.get("b\nx"), at.get("b\nz")], [0.5, 1.5, 2 + GAP + 0.5]);
  assert.deepEqual(
    ticks.map(({ place, bars }) => [place, bars]),
    [
      ["x", 2],
      ["z", 1],
    ],
  );
  assert.equal(end, 3 + GAP);
});

test("names that fit are in lines, where one does not all are numbered or aslant", () => {
  const places = ["short", "another name"];
  const positions = barPositions(places, () => ["a"]);
  const wide = tickLabels(positions, places, 800, "numbers");
  assert.deepEqual([wide.style, wide.labels], ["lines", places]);
  assert.deepEqual(tickLabels(positions, places, 150, "numbers").labels, ["1", "2"]);
  assert.equal(tickLabels(positions, ["<i>", "x"], 150, "aslant").style, "aslant");
});

test("few bars do not fill a wide chart", () => {
  const positions = barPositions(["x"], () => ["a"]);
  assert.ok(tickLabels(positions, ["x"], 2000, "numbers").barWidth < 0.2);
  assert.equal(tickLabels(positions, ["x"], 200, "numbers").barWidth, 0.92);
});
