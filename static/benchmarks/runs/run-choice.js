// The choice of a run: the order in which GPUs are taken, their summary, and the executors that can run it.
import { _, _n } from "../../site/language.js";

const GIB = 2 ** 30;
const listFormat = new Intl.ListFormat(globalThis.document?.documentElement.lang || "en", { type: "conjunction" });

/** GPUs { rank, at, ... } in the order in which they are taken for a host port ('': any); the server has the same. */
export function takingOrder(gpus, port = "") {
  const rank = (gpu) => 2 * Number(gpu.rank) + (port && gpu.at !== port ? 1 : 0);
  return [...gpus].sort((one, other) => rank(one) - rank(other));
}

/** 'N GPUs chosen, of which ...' with their memory, as far as it is known.
 *
 * `host` is { name, count of its own GPUs that are chosen, memory of each of its own (bytes), free, run }: `run` holds
 * those that are not free. `gpus` are those of the chassis that are chosen: { here, from (a host), memory (bytes, 0:
 * unknown), run }. */
export function describeGpus(host, gpus) {
  const count = host.count + gpus.length;
  if (!count) return _("No GPU is chosen yet.");
  const parts = [
    [host.count, _("{host}’s own", { host: host.name })],
    [gpus.filter((gpu) => gpu.here).length, _("attached already")],
    [gpus.filter((gpu) => !gpu.here && !gpu.from).length, _("detached")],
  ];
  for (const from of new Set(gpus.map((gpu) => gpu.from).filter(Boolean))) {
    parts.push([gpus.filter((gpu) => gpu.from === from).length, _("taken from {host}", { host: from })]);
  }
  const memories = [
    ...gpus.map((gpu) => gpu.memory),
    ...Array.from({ length: host.count }, (_, i) => host.memory[i] || 0),
  ];
  const memory = memories.reduce((sum, one) => sum + one, 0);
  const runs = new Set(gpus.map((gpu) => gpu.run).filter(Boolean));
  const titles = [...runs].map((title) => `‘${title}’`);
  if (host.count > host.free && !titles.includes(host.run)) titles.push(host.run);
  const places = describeParts(parts, count);
  const sentences = [_n("{count} GPU chosen, {places}.", "{count} GPUs chosen, {places}.", count, { places })];
  const size = Math.round(memory / GIB);
  if (memory && memories.every(Boolean)) {
    sentences.push(_n("{size} GiB of memory.", "{size} GiB of memory together.", count, { size }));
  } else if (memory) {
    sentences.push(_n("At least {size} GiB of memory.", "At least {size} GiB of memory together.", count, { size }));
  }
  if (titles.length) sentences.push(_("The run waits for {runs} to end.", { runs: listFormat.format(titles) }));
  return sentences.join(" ");
}

function describeParts(parts, count) {
  const found = parts.filter(([number]) => number);
  if (found.length === 1) return _n("it is {place}", "all are {place}", count, { place: found[0][1] });
  const words = found.map(([number, place]) => _n("{count} is {place}", "{count} are {place}", number, { place }));
  return _("of which {parts}", { parts: listFormat.format(words) });
}

/** Why a host cannot run something with an executor, '' where it can or does not report what it can.
 *
 * `host` is { name, executors, backends, account }, the first two words separated by spaces. */
export function executorBlocker(executor, { isCommand, onCpu }, host) {
  if (isCommand && executor === "simulated") return _("A command of your own is not simulated.");
  if (host?.executors === undefined) return "";
  if (!host.executors.split(" ").includes(executor)) return _("Not on {host}.", { host: host.name });
  if (isCommand && !host.account) return _("The agent of {host} has no account for commands.", { host: host.name });
  if (isCommand || executor !== "torch" || host.backends.split(" ").includes(onCpu ? "cpu" : "cuda")) return "";
  return onCpu
    ? _("On {host} it runs on the GPUs alone.", { host: host.name })
    : _("On {host} it runs on the CPU alone.", { host: host.name });
}
