// The series of a run: how they are named and scaled, and which of them a chart shows.
import { _ } from "../../site/language.js";

const MOST_LINES = 16;
const PHASES = {
  warmup: _("warm-up"),
  timed: _("timed steps"),
  validation: _("validation"),
  checkpoint: _("checkpoint"),
  resumed: _("steps after a restart"),
  no_sync: _("without exchange"),
};
const SCALES = {
  s: [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
  ],
  "B/s": [
    [1e9, "GB/s"],
    [1e6, "MB/s"],
    [1e3, "kB/s"],
  ],
  share: [[0.01, "%"]],
};

/** The name of a line in a chart of the keys that begin and end so, with the names of GPUs by address: 'timed steps',
 * 'own GPU 1', 'falcon-1 drawer 1 slot 3 · V100, from it'. */
export function seriesName(key, { begins, ends }, gpus) {
  const [first, address, last] = key.split("/");
  if (first === "gpu" && last) {
    const name = gpus[address] ?? _("GPU at {address}", { address });
    if (!ends.startsWith("/pcie")) return name;
    return last.endsWith("from") ? _("{device}, from it", { device: name }) : _("{device}, to it", { device: name });
  }
  const rest = key.slice(begins.length).replace(ends, "");
  return PHASES[rest] ?? (rest || key);
}

/** The unit in which values up to `most` are shown: [its size, its name]. */
export function displayUnit(unit, most) {
  const scales = SCALES[unit] ?? [[1, unit]];
  return scales.find(([size]) => Math.abs(most) >= size) ?? scales.at(-1);
}

/** The keys that a chart shows, and how many it would have: { keys, all }. Where not all can be drawn, composed
 * devices come before those that are always there. */
export function chartKeys(allKeys, { begins, ends }, gpus) {
  const keys = allKeys.filter((key) => {
    const isOf = key.endsWith(ends) || key.slice(0, key.lastIndexOf("_") + 1).endsWith(ends);
    return key.startsWith(begins) && isOf;
  });
  const own = _("own GPU {number}", { number: "" }); // as the server names them
  const isOwn = (key) => seriesName(key, { begins, ends }, gpus).startsWith(own);
  if (keys.length > MOST_LINES) keys.sort((key, other) => isOwn(key) - isOwn(other));
  return { keys: keys.slice(0, MOST_LINES), all: keys.length };
}
