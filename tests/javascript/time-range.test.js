import assert from "node:assert/strict";
import test from "node:test";

import { movedRange, queryText, rangeOf, zoomQuery } from "../../static/telemetry/history/time-range.js";

const query = (text) => new URLSearchParams(text);

test("a named range is live and ends now; without any it is an hour", () => {
  assert.deepEqual(rangeOf(query("range=6h"), 100_000), {
    name: "6h",
    live: true,
    since: 78_400,
    until: 100_000,
    seconds: 21_600,
  });
  assert.equal(rangeOf(query(""), 0).seconds, 3600);
});

test("two moments are a range of their own", () => {
  const range = rangeOf(query("since=1970-01-01T00:01:00Z&until=1970-01-01T00:02:30Z"), 0);
  assert.deepEqual(range, { name: "", live: false, since: 60, until: 150, seconds: 90 });
});

test("what only the server understands is left to it", () => {
  for (const text of [
    "since=yesterday",
    "since=-2h&until=now",
    "since=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z",
  ]) {
    assert.equal(rangeOf(query(text), 0), null, text);
  }
  assert.equal(rangeOf(query("range=3w"), 0), null);
});

test("zooming keeps what is shown, and ends the search", () => {
  const zoomed = zoomQuery("?of=device/1&range=1h&q=gpu", 60, 120);
  assert.equal(queryText(zoomed), "of=device/1&since=1970-01-01T00:01:00Z&until=1970-01-01T00:02:00Z");
});

test("no range is shorter than ten seconds, and its middle stays", () => {
  const range = rangeOf(zoomQuery("", 100, 101), 0);
  assert.ok(range.seconds >= 10);
  assert.ok(Math.abs((range.since + range.until) / 2 - 100.5) <= 0.5);
});

test("a range moves by half of it, and zooms in and out again", () => {
  assert.deepEqual(movedRange("earlier", 100, 200), [50, 150]);
  assert.deepEqual(movedRange("later", 100, 200), [150, 250]);
  assert.deepEqual(movedRange("out", ...movedRange("in", 100, 200)), [100, 200]);
});
