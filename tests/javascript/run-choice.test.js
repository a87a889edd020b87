import assert from "node:assert/strict";
import test from "node:test";

import { describeGpus, executorBlocker, takingOrder } from "../../static/benchmarks/runs/run-choice.js";

const GIB = 2 ** 30;
const host = (more) => ({ name: "node-a", count: 0, memory: [], free: Infinity, ...more });
const gpu = (more) => ({ memory: 16 * GIB, ...more });

test("GPUs are taken by rank, those of the port first among equals", () => {
  const gpus = [
    { rank: "1", at: "p1", name: "a" },
    { rank: "0", at: "p2", name: "b" },
    { rank: "0", at: "p1", name: "c" },
  ];
  const names = (port) => takingOrder(gpus, port).map(({ name }) => name);
  assert.deepEqual(names("p1"), ["c", "b", "a"]);
  assert.deepEqual(names(""), ["b", "c", "a"]);
});

test("no GPU, one and several are in words", () => {
  assert.equal(describeGpus(host(), []), "No GPU is chosen yet.");
  assert.equal(describeGpus(host(), [gpu()]), "1 GPU chosen, it is detached. 16 GiB of memory.");
  assert.equal(
    describeGpus(host(), [gpu({ here: "1" }), gpu({ here: "1" })]),
    "2 GPUs chosen, all are attached already. 32 GiB of memory together.",
  );
});

test("where they come from is listed", () => {
  const own = host({ count: 1, memory: [8 * GIB, 8 * GIB] });
  assert.equal(
    describeGpus(own, [gpu(), gpu({ from: "node-b" }), gpu({ from: "node-b" })]),
    "4 GPUs chosen, of which 1 is node-a’s own, 1 is detached, and 2 are taken from node-b. " +
      "56 GiB of memory together.",
  );
});

test("memory that is unknown makes the sum a lower bound, or leaves it out", () => {
  assert.match(describeGpus(host(), [gpu(), gpu({ memory: 0 })]), /At least 16 GiB/);
  assert.equal(describeGpus(host({ count: 2 }), []), "2 GPUs chosen, all are node-a’s own.");
});

test("runs that hold a GPU are waited for, each once", () => {
  const both = [gpu({ run: "one" }), gpu({ run: "two" })];
  const words = describeGpus(host({ count: 2, free: 1, run: "‘one’" }), both);
  assert.match(words, /The run waits for ‘one’ and ‘two’ to end\.$/);
});

const able = { name: "node-a", executors: "torch simulated", backends: "cuda", account: "" };
const why = (executor, run, more) => executorBlocker(executor, run, { ...able, ...more });

test("a host that does not report what it can run blocks nothing", () => {
  assert.equal(executorBlocker("torch", {}, null), "");
  assert.equal(executorBlocker("torch", {}, { name: "node-a" }), "");
});

test("an executor is blocked where the host lacks it, or its backend", () => {
  assert.equal(why("torch", {}), "");
  assert.equal(why("simulated", { onCpu: true }), "");
  assert.equal(why("slurm", {}), "Not on node-a.");
  assert.equal(why("torch", { onCpu: true }), "On node-a it runs on the GPUs alone.");
  assert.equal(why("torch", {}, { backends: "cpu" }), "On node-a it runs on the CPU alone.");
});

test("a command needs an account, and is never simulated", () => {
  assert.equal(why("simulated", { isCommand: true }), "A command of your own is not simulated.");
  assert.equal(why("torch", { isCommand: true }), "The agent of node-a has no account for commands.");
  assert.equal(why("torch", { isCommand: true, onCpu: true }, { account: "bench" }), "");
});
