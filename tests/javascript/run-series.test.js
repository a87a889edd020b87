import assert from "node:assert/strict";
import test from "node:test";

import { chartKeys, displayUnit, seriesName } from "../../static/benchmarks/runs/run-series.js";

const gpus = { "0000:3b:00.0": "own GPU 1", "0000:5e:00.0": "falcon-1 drawer 1 slot 3 · V100" };

test("a line has the name of its GPU, and its direction where it is of a link", () => {
  const load = { begins: "gpu/", ends: "/load" };
  assert.equal(seriesName("gpu/0000:3b:00.0/load", load, gpus), "own GPU 1");
  assert.equal(seriesName("gpu/0000:99:00.0/load", load, gpus), "GPU at 0000:99:00.0");
  const link = { begins: "gpu/", ends: "/pcie_" };
  assert.equal(seriesName("gpu/0000:3b:00.0/pcie_from", link, gpus), "own GPU 1, from it");
  assert.equal(seriesName("gpu/0000:3b:00.0/pcie_to", link, gpus), "own GPU 1, to it");
});

test("a phase has its words, and any other key what the chart does not have in common", () => {
  const steps = { begins: "step/", ends: "/seconds" };
  assert.equal(seriesName("step/timed/seconds", steps, gpus), "timed steps");
  assert.equal(seriesName("step/other/seconds", steps, gpus), "other");
  assert.equal(seriesName("loss", { begins: "loss", ends: "" }, gpus), "loss");
});

test("values are shown in the unit in which the greatest is at least 1", () => {
  assert.deepEqual(displayUnit("s", 2), [1, "s"]);
  assert.deepEqual(displayUnit("s", 0.02), [1e-3, "ms"]);
  assert.deepEqual(displayUnit("B/s", 5), [1e3, "kB/s"]);
  assert.deepEqual(displayUnit("samples/s", 5), [1, "samples/s"]);
});

test("a chart has its own keys, and at most sixteen, composed devices first", () => {
  const names = Object.fromEntries(
    Array.from({ length: 20 }, (_, i) => [`${i}`, i < 10 ? `own GPU ${i}` : `GPU ${i}`]),
  );
  const all = [...Object.keys(names).map((one) => `gpu/${one}/load`), "cpu/load", "gpu/1/heat"];
  const found = chartKeys(all, { begins: "gpu/", ends: "/load" }, names);
  assert.deepEqual([found.all, found.keys.length], [20, 16]);
  assert.deepEqual(found.keys.slice(0, 10), all.slice(10, 20));
});
