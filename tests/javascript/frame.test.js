import assert from "node:assert/strict";
import test from "node:test";

import { decode } from "../../static/telemetry/live/frame.js";

const HEADER = 22;

function header(kind, { version = 1, count = 3, size = HEADER } = {}) {
  const view = new DataView(new ArrayBuffer(size));
  view.setUint8(0, kind);
  view.setUint8(1, version);
  view.setUint16(2, 7, true);
  view.setUint32(4, 42, true);
  view.setUint32(8, 1000, true);
  view.setFloat64(12, 1.5, true);
  view.setUint16(20, count, true);
  return view;
}

function key(...values) {
  const view = header(1, { count: values.length, size: HEADER + 8 * values.length });
  for (const [i, value] of values.entries()) view.setFloat64(HEADER + 8 * i, value, true);
  return view.buffer;
}

function delta(count, changes) {
  const bitmap = Math.ceil(count / 8);
  const view = header(2, { count, size: HEADER + bitmap + 8 * changes.length });
  for (const [i, [place, value]] of changes.entries()) {
    view.setUint8(HEADER + (place >> 3), view.getUint8(HEADER + (place >> 3)) | (1 << (place & 7)));
    view.setFloat64(HEADER + bitmap + 8 * i, value, true);
  }
  return view.buffer;
}

test("a key frame has its header and all values", () => {
  const frame = decode(key(1, NaN, -2.5), null);
  assert.deepEqual([frame.revision, frame.chassis, frame.sequence, frame.at], [7, 42, 1000, 1.5]);
  assert.deepEqual([...frame.values], [1, NaN, -2.5]);
});

test("a delta changes the values that its bitmap names, and leaves the frame before as it was", () => {
  const before = Float64Array.from({ length: 12 }, (_, i) => i);
  const { values } = decode(
    delta(12, [
      [0, 100],
      [9, NaN],
      [11, -1],
    ]),
    before,
  );
  assert.deepEqual([...values], [100, 1, 2, 3, 4, 5, 6, 7, 8, NaN, 10, -1]);
  assert.deepEqual([...before], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
});

test("a delta without the frame before, or after one of another length, needs a key frame", () => {
  assert.equal(decode(delta(3, []), null), null);
  assert.equal(decode(delta(3, []), new Float64Array(4)), null);
});

test("other versions, other kinds and what is too short are refused", () => {
  assert.equal(decode(header(1, { version: 2 }).buffer, null), null);
  assert.equal(decode(header(3).buffer, new Float64Array(3)), null);
  assert.equal(decode(new ArrayBuffer(HEADER - 1), null), null);
});
