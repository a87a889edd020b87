import assert from "node:assert/strict";
import test from "node:test";

import { drawChart, lineStyles, MARGIN, segments, timeScale } from "../../static/site/chart-drawing.js";
import { Columns } from "../../static/site/columns.js";

test("times map to pixels between the margins and back, at most as far as the ends", () => {
  const { x, timeAt, right } = timeScale([100, 200], 512);
  assert.deepEqual([x(100), x(200)], [MARGIN.left, right]);
  assert.equal(timeAt(x(150)), 150);
  assert.deepEqual([timeAt(0), timeAt(1000)], [100, 200]);
});

test("lines are interrupted by values that are missing and by long pauses", () => {
  const at = [0, 1, 2, 3, 6, 7];
  assert.deepEqual(segments(at, [1, 1, NaN, 1, 1, 1], 2.5), [
    [0, 2],
    [3, 4],
    [4, 6],
  ]);
  assert.deepEqual(segments(at, [NaN, NaN, NaN, NaN, NaN, NaN], 2.5), []);
  assert.deepEqual(segments([], [], 2.5), []);
});

test("several things have a colour each and their quantities a dash", () => {
  const styles = lineStyles([
    { thing: "a", quantity: "rx" },
    { thing: "a", quantity: "tx" },
    { thing: "b", quantity: "rx" },
  ]);
  assert.deepEqual(
    styles.map(({ colour, dash }) => `${colour} ${dash}`),
    ["0 solid", "0 dot", "1 solid"],
  );
});

test("quantities of one thing, or more than there are dashes, have a colour each", () => {
  const one = lineStyles([
    { thing: "a", quantity: "rx" },
    { thing: "a", quantity: "tx" },
  ]);
  assert.deepEqual(
    one.map(({ colour }) => colour),
    [0, 1],
  );
  const many = lineStyles(Array.from({ length: 10 }, (_, i) => ({ thing: `${i % 2}`, quantity: `${i}` })));
  assert.deepEqual([many[7].dash, many[8].dash], ["solid", "dot"]);
});

/** A context that records what is called; `of(name)` are the arguments of each call. */
function recorder() {
  const calls = [];
  return {
    context: new Proxy(
      {},
      {
        get:
          (_, name) =>
          (...given) =>
            calls.push([name, ...given]),
        set: () => true,
      },
    ),
    of: (name) => calls.filter(([one]) => one === name).map(([, ...given]) => given),
  };
}

function viewOf(columns, more) {
  return {
    width: 512,
    window: [0, 100],
    ends: [0, 10],
    scale: 1,
    gaps: [],
    ink: {},
    columns,
    lines: [{ place: 0, colour: "red", dash: "solid" }],
    banded: true,
    ...more,
  };
}

test("a line goes from point to point, and one reading between gaps is a dot", () => {
  const { context, of } = recorder();
  const columns = Columns.from([0, 1, 50], 0, [{ mean: [0, 10, 5] }]);
  drawChart(context, viewOf(columns));
  const { x } = timeScale([0, 100], 512);
  assert.ok(of("lineTo").some(([left, top]) => left === x(1) && top === MARGIN.top));
  assert.equal(of("rect").at(-1)[0], x(50) - 0.5);
});

test("times of the axis are in the zone of the view, also in a worker, which has no page", () => {
  const { context, of } = recorder();
  drawChart(context, viewOf(new Columns(1), { window: [0, 7200], zone: "Asia/Tokyo" }));
  const texts = of("fillText").map(([text]) => text);
  assert.ok(texts.includes("10:00"), texts.join());
  assert.ok(!texts.includes("01:00"), texts.join());
});

test("gaps are marked along the foot, as far as they are in the range", () => {
  const { context, of } = recorder();
  const gaps = [
    { since: -50, until: 10 },
    { since: 200, until: 300 },
  ];
  drawChart(context, viewOf(new Columns(1), { gaps }));
  const { x } = timeScale([0, 100], 512);
  assert.deepEqual(
    of("fillRect").map(([left, , width]) => [left, width]),
    [[MARGIN.left, x(10) - MARGIN.left]],
  );
});

test("a band is filled where there are few lines", () => {
  const columns = Columns.from([0, 60], 60, [{ mean: [1, 2], low: [0, 1], high: [3, 4] }]);
  for (const banded of [true, false]) {
    const { context, of } = recorder();
    drawChart(context, viewOf(columns, { banded }));
    assert.equal(of("fill").length, banded ? 1 : 0);
  }
});
