import assert from "node:assert/strict";
import test from "node:test";

import {
  escapeMarkup,
  formatDuration,
  formatPercent,
  formatShort,
  formatTime,
  formatValue,
  isoTime,
  momentOf,
  zoneOffset,
} from "../../static/site/format.js";

const table = (format, cases) => {
  for (const [given, expected] of cases) assert.equal(format(...[given].flat()), expected);
};

test("a value has the decimals of its unit", () => {
  table(formatValue, [
    [[41.25, "°C"], "41.3 °C"],
    [[99.6, "%"], "100 %"],
    [[12.1, "V"], "12.10 V"],
    [[1.5e9, "B/s"], "1.50 GB/s"],
    [[17, ""], "17"],
    [[1.23, "m³/h"], "1.2 m³/h"],
  ]);
});

test("the state of a link is a word, and no value says so", () => {
  table(formatValue, [
    [[4, "state"], "up"],
    [[9, "state"], "9"],
    [[NaN, "W"], "no value"],
    [[Infinity, "W"], "no value"],
  ]);
});

test("a duration is in the largest unit that divides it", () => {
  table(formatDuration, [
    [10, "10 s"],
    [90, "90 s"],
    [900, "15 min"],
    [21600, "6 h"],
    [30 * 86400, "30 d"],
    [365 * 86400, "year"],
    [730 * 86400, "2 year"],
    [0.25, "0.3 s"],
  ]);
});

test("numbers of an axis are short", () => {
  table(formatShort, [
    [0, "0"],
    [-0.5, "-0.5"],
    [9999, "9999"],
    [12500, "12.5k"],
    [-2e6, "-2M"],
    [3e9, "3G"],
  ]);
});

test("a moment is in the zone of the page, UTC where there is none, to the second", () => {
  assert.equal(isoTime(1.6), "1970-01-01T00:00:02");
  assert.equal(formatTime(0), "1970-01-01 00:00:00");
  globalThis.document = { documentElement: { dataset: { zone: "Asia/Tokyo" } } };
  assert.equal(formatTime(0), "1970-01-01 09:00:00");
  delete globalThis.document;
});

test("the clocks of a zone are set in spring and in autumn, and an unknown zone is UTC", () => {
  const at = (text) => Date.parse(text) / 1000;
  table(
    (text) => zoneOffset(at(text), "Europe/Berlin") / 3600,
    [
      ["2026-03-29T00:59:59Z", 1],
      ["2026-03-29T01:00:00Z", 2],
      ["2026-10-25T00:59:59Z", 2],
      ["2026-10-25T01:00:00Z", 1],
    ],
  );
  assert.equal(zoneOffset(-1.5, "Asia/Kolkata"), 5.5 * 3600);
  assert.equal(zoneOffset(0, "Nowhere/Town"), 0);
  assert.equal(momentOf(at("2026-03-29T12:00:00Z"), "Europe/Berlin"), at("2026-03-29T10:00:00Z"));
});

test("a share is at most 100 %", () => {
  table(formatPercent, [
    [0.424, "42 %"],
    [1.3, "100 %"],
  ]);
});

test("a name is no markup", () => {
  assert.equal(escapeMarkup("a <b> & c"), "a &lt;b> &amp; c");
  assert.equal(escapeMarkup(5), "5");
});
