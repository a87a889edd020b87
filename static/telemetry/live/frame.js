// Decoder of live frames; the layout is described in telemetry/live/frames.py.
const HEADER = 22;
const KEY = 1;
const DELTA = 2;

/** Decode a frame over `values` (Float64Array of the frame before, or null). Returns null where a key frame is needed.
 * */
export function decode(buffer, before) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER || view.getUint8(1) !== 1) return null;
  const kind = view.getUint8(0);
  const frame = {
    revision: view.getUint16(2, true),
    chassis: view.getUint32(4, true),
    sequence: view.getUint32(8, true),
    at: view.getFloat64(12, true),
  };
  const count = view.getUint16(20, true);
  if (kind === KEY) {
    frame.values = new Float64Array(count);
    for (let i = 0; i < count; i++) frame.values[i] = view.getFloat64(HEADER + 8 * i, true);
    return frame;
  }
  if (kind !== DELTA || !before || before.length !== count) return null;
  const values = before.slice();
  const begin = HEADER + Math.ceil(count / 8);
  const isChanged = new Uint8Array(buffer, HEADER, begin - HEADER);
  const changed = new Float64Array(buffer.slice(begin)); // all browsers are on machines with this order of bytes
  for (let i = 0, next = 0; i < count; i++) {
    if (isChanged[i >> 3] & (1 << (i & 7))) values[i] = changed[next++];
  }
  frame.values = values;
  return frame;
}
