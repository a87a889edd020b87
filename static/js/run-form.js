// The form of a run: another workload brings its own sizes, only what fits the chosen place is shown, and GPUs are taken
// one by one, by number or all at once. What is chosen is told in one sentence, also aloud.
const what = document.querySelector("[data-what]");
const form = document.querySelector("[data-run-form]");
const GIB = 2 ** 30;
// Where it runs stays as it was chosen when another workload is shown.
const KEPT = /^(host|where|executor|title|limit|keep_composed|(local|device|port|storage)-\d+(-\d+)?)$/;
const listed = new Intl.ListFormat("en", { type: "conjunction" });
const value = (name) => form.querySelector(`input[name="${name}"]:checked`)?.value ?? "";
const hostPart = () => form.querySelector(`[data-host="${value("host")}"]`);
const choiceBeside = (box) => form.querySelector(`select[data-port-of="${box.name}"]`);
const portOf = (box) => choiceBeside(box)?.value ?? box.value;
const boxesOf = (part) => [...part.querySelectorAll("[data-gpu]:not(:disabled)")];
const canHave = (box, port) => box.dataset.ports.split(" ").includes(port);

/** Boxes in the order in which they are taken for a host port ('': for any); the server's order is the same. */
function inTurn(boxes, port = "") {
  const rank = (box) => 2 * Number(box.dataset.rank) + (port && box.dataset.at !== port ? 1 : 0);
  return [...boxes].sort((one, other) => rank(one) - rank(other));
}

function takeNumber(input) {
  const port = input.dataset.count;
  const boxes = boxesOf(input.closest("[data-drawer]"));
  const mine = inTurn(
    boxes.filter((box) => box.checked && portOf(box) === port),
    port,
  );
  const free = inTurn(
    boxes.filter((box) => !box.checked && canHave(box, port)),
    port,
  );
  const wanted = Math.max(0, Math.floor(Number(input.value) || 0));
  for (const box of mine.slice(wanted)) box.checked = false;
  for (const box of free.slice(0, Math.max(0, wanted - mine.length))) {
    box.checked = true;
    const beside = choiceBeside(box);
    if (beside) beside.value = port;
  }
}

function showNumbers(drawer) {
  const boxes = boxesOf(drawer);
  const taken = boxes.filter((box) => box.checked);
  for (const input of drawer.querySelectorAll("[data-count]")) {
    const count = String(taken.filter((box) => portOf(box) === input.dataset.count).length);
    const isBeingTyped = input === document.activeElement && input.value === "";
    if (!isBeingTyped && input.value !== count) input.value = count;
  }
  const all = drawer.querySelector("[data-all]");
  if (!all) return;
  all.checked = taken.length === boxes.length;
  all.indeterminate = taken.length > 0 && !all.checked;
}

const gibibytes = (bytes) => `${Math.round(bytes / GIB)} GiB`;

/** 'N GPUs chosen, of which …' with their memory, as far as it is known. */
function gpusInWords(part) {
  const boxes = boxesOf(part).filter((box) => box.checked);
  const ownField = part.querySelector("[data-own]");
  const own = Math.max(0, Math.floor(Number(ownField?.value) || 0));
  const count = own + boxes.length;
  if (!count) return "No GPU is chosen yet.";
  const parts = [[own, `${part.dataset.hostName}’s own`]];
  parts.push([boxes.filter((box) => box.dataset.here).length, "attached already"]);
  parts.push([boxes.filter((box) => !box.dataset.here && !box.dataset.from).length, "free"]);
  for (const from of new Set(boxes.map((box) => box.dataset.from).filter(Boolean))) {
    parts.push([boxes.filter((box) => box.dataset.from === from).length, `taken from ${from}`]);
  }
  const told = parts.filter(([number]) => number);
  const of =
    told.length === 1
      ? `${count === 1 ? "it is" : "all are"} ${told[0][1]}`
      : `of which ${listed.format(told.map(([number, words]) => `${number} ${number === 1 ? "is" : "are"} ${words}`))}`;
  const ownMemory = (ownField?.dataset.memory ?? "").split(" ").map(Number).slice(0, own);
  const each = [
    ...boxes.map((box) => Number(box.dataset.memory)),
    ...Array.from({ length: own }, (_, i) => ownMemory[i] || 0),
  ];
  const memory = each.reduce((sum, one) => sum + one, 0);
  const runs = [...new Set(boxes.map((box) => box.dataset.run).filter(Boolean))].map((title) => `‘${title}’`);
  if (own > Number(ownField?.dataset.free ?? own) && !runs.includes(ownField.dataset.runs))
    runs.push(ownField.dataset.runs);
  return [
    `${count} GPU${count === 1 ? "" : "s"} chosen, ${of}.`,
    memory
      ? `${each.every(Boolean) ? "" : "At least "}${gibibytes(memory)} of memory${count > 1 ? " together" : ""}.`
      : "",
    runs.length ? `The run waits for ${listed.format(runs)} to end.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

function sum(part) {
  const gpus = value("where") === "cpu" ? `On the CPU of ${part.dataset.hostName}.` : gpusInWords(part);
  const drive = part.querySelector('input[name^="storage-"]:checked')?.dataset.drive;
  return drive ? `${gpus} Data from ${drive}.` : gpus;
}

/** Why the chosen host cannot carry the run out so, '' where it can or tells nothing. */
function whyNotBy(executor) {
  const host = form.querySelector('input[name="host"]:checked');
  const name = hostPart()?.dataset.hostName;
  const isCommand = form.dataset.family === "command";
  if (isCommand && executor === "simulated") return "A command of your own is not simulated.";
  if (host?.dataset.executors === undefined) return "";
  if (!host.dataset.executors.split(" ").includes(executor)) return `Not on ${name}.`;
  if (isCommand && !host.dataset.account) return `The agent of ${name} has no account for commands.`;
  const backend = value("where") === "cpu" ? "cpu" : "cuda";
  if (isCommand || executor !== "torch" || host.dataset.backends.split(" ").includes(backend)) return "";
  return `On ${name} it runs on the ${backend === "cpu" ? "GPUs" : "CPU"} alone.`;
}

function showExecutors() {
  const radios = [...form.querySelectorAll('input[name="executor"]')];
  for (const radio of radios) {
    const why = whyNotBy(radio.value);
    const place = radio.closest("label").querySelector("[data-unoffered]");
    radio.disabled = why !== "";
    place.textContent = why;
    place.hidden = why === "";
  }
  if (radios.some((radio) => radio.checked && radio.disabled)) {
    const other = radios.find((radio) => !radio.disabled);
    if (other) other.checked = true;
  }
}

function show() {
  const [host, where] = [value("host"), value("where")];
  for (const part of form.querySelectorAll("[data-host], [data-on]")) {
    part.hidden = (part.dataset.host ?? host) !== host || (part.dataset.on ?? where) !== where;
  }
  form.querySelectorAll("[data-drawer]").forEach(showNumbers);
  showExecutors();
  const part = hostPart();
  const place = form.querySelector("[data-sum]");
  const sentence = part ? sum(part) : "";
  if (place.textContent !== sentence) place.textContent = sentence;
}

if (what) {
  what.querySelector("[data-show]").hidden = true;
  what.addEventListener("change", () => {
    const chosen = hostPart();
    for (const [name, given] of form ? new FormData(form) : []) {
      const isElsewhere =
        chosen && form.elements[name]?.closest?.("[data-host]") && !chosen.contains(form.elements[name]);
      const isIdle =
        name.startsWith("port-") &&
        !form.querySelector(`[name="${name}"]`).closest("li").querySelector("input").checked;
      if (!KEPT.test(name) || isElsewhere || isIdle) continue;
      what.append(Object.assign(document.createElement("input"), { type: "hidden", name, value: given }));
    }
    what.requestSubmit();
  });
}
if (form) {
  form.addEventListener("input", ({ target }) => {
    if (target.dataset.count) takeNumber(target);
    if (target.dataset.all !== undefined) {
      for (const box of boxesOf(target.closest("[data-drawer]"))) box.checked = target.checked;
    }
    // Whoever chooses a host port for a GPU wants it.
    if (target.dataset.portOf) target.closest("li").querySelector("input").checked = true;
    show();
  });
  form.addEventListener("focusout", show);
  // A page that is gone back to has its fields filled in again.
  window.addEventListener("pageshow", show);
  show();
}
