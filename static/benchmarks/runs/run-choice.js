// The choice of a run: the order in which GPUs are taken, their summary, and the executors that can run it.
const GIB = 2 ** 30;
const listFormat = new Intl.ListFormat("en", { type: "conjunction" });

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
  if (!count) return "No GPU is chosen yet.";
  const parts = [
    [host.count, `${host.name}’s own`],
    [gpus.filter((gpu) => gpu.here).length, "attached already"],
    [gpus.filter((gpu) => !gpu.here && !gpu.from).length, "detached"],
  ];
  for (const from of new Set(gpus.map((gpu) => gpu.from).filter(Boolean))) {
    parts.push([gpus.filter((gpu) => gpu.from === from).length, `taken from ${from}`]);
  }
  const memories = [
    ...gpus.map((gpu) => gpu.memory),
    ...Array.from({ length: host.count }, (_, i) => host.memory[i] || 0),
  ];
  const memory = memories.reduce((sum, one) => sum + one, 0);
  const runs = new Set(gpus.map((gpu) => gpu.run).filter(Boolean));
  const titles = [...runs].map((title) => `‘${title}’`);
  if (host.count > host.free && !titles.includes(host.run)) titles.push(host.run);
  const sentences = [`${count} GPU${count === 1 ? "" : "s"} chosen, ${describeParts(parts, count)}.`];
  if (memory) {
    const least = memories.every(Boolean) ? "" : "At least ";
    sentences.push(`${least}${Math.round(memory / GIB)} GiB of memory${count > 1 ? " together" : ""}.`);
  }
  if (titles.length) sentences.push(`The run waits for ${listFormat.format(titles)} to end.`);
  return sentences.join(" ");
}

function describeParts(parts, count) {
  const found = parts.filter(([number]) => number);
  if (found.length === 1) return `${count === 1 ? "it is" : "all are"} ${found[0][1]}`;
  const words = found.map(([number, text]) => `${number} ${number === 1 ? "is" : "are"} ${text}`);
  return `of which ${listFormat.format(words)}`;
}

/** Why a host cannot run something with an executor, '' where it can or does not report what it can.
 *
 * `host` is { name, executors, backends, account }, the first two words separated by spaces. */
export function executorBlocker(executor, { isCommand, onCpu }, host) {
  if (isCommand && executor === "simulated") return "A command of your own is not simulated.";
  if (host?.executors === undefined) return "";
  if (!host.executors.split(" ").includes(executor)) return `Not on ${host.name}.`;
  if (isCommand && !host.account) return `The agent of ${host.name} has no account for commands.`;
  if (isCommand || executor !== "torch" || host.backends.split(" ").includes(onCpu ? "cpu" : "cuda")) return "";
  return `On ${host.name} it runs on the ${onCpu ? "GPUs" : "CPU"} alone.`;
}
