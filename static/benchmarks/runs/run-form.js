// The form of a run: another workload has its own sizes, only fields of the chosen place are shown, and GPUs are
// chosen one by one, by number or all together. One sentence sums up the choice, also for screen readers.
import { element } from "../../site/dom.js";
import { _ } from "../../site/language.js";
import { describeGpus, executorBlocker, takingOrder } from "./run-choice.js";

const workloadForm = document.querySelector("[data-what]");
const form = document.querySelector("[data-run-form]");
// Where it runs stays as it was chosen when another workload is shown.
const KEPT = /^(host|where|executor|title|limit|keep_composed|(with|local|device|port|storage)-\d+(-\d+)?)$/;
const value = (name) => form.querySelector(`input[name="${name}"]:checked`)?.value ?? "";
const otherBoxes = () => [...form.querySelectorAll("[data-other]")];
/** The hosts of the run: the chosen one, and those that it is on, too. */
const hostsOfRun = () => [
  value("host"),
  ...otherBoxes()
    .filter((box) => box.checked && box.dataset.other !== value("host"))
    .map((box) => box.dataset.other),
];
const hostParts = () => hostsOfRun().flatMap((host) => form.querySelector(`[data-host="${host}"]`) ?? []);
const portChoice = (box) => form.querySelector(`select[data-port-of="${box.name}"]`);
const portOf = (box) => portChoice(box)?.value ?? box.value;
const boxesOf = (part) => [...part.querySelectorAll("[data-gpu]:not(:disabled)")];
const canHave = (box, port) => box.dataset.ports.split(" ").includes(port);
const wholeNumber = (text) => Math.max(0, Math.floor(Number(text) || 0));

/** Checkboxes of GPUs in the order in which they are taken. */
const inOrder = (boxes, port) =>
  takingOrder(
    boxes.map(({ dataset: { rank, at } }, place) => ({ rank, at, place })),
    port,
  ).map(({ place }) => boxes[place]);

/** Check as many boxes as a number field of a host port says. */
function takeNumber(input) {
  const port = input.dataset.count;
  const boxes = boxesOf(input.closest("[data-drawer]"));
  const taken = inOrder(
    boxes.filter((box) => box.checked && portOf(box) === port),
    port,
  );
  const free = inOrder(
    boxes.filter((box) => !box.checked && canHave(box, port)),
    port,
  );
  const number = wholeNumber(input.value);
  for (const box of taken.slice(number)) box.checked = false;
  for (const box of free.slice(0, Math.max(0, number - taken.length))) {
    box.checked = true;
    const choice = portChoice(box);
    if (choice) choice.value = port;
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

function summary(part) {
  const own = part.querySelector("[data-own]");
  const gpus = boxesOf(part)
    .filter((box) => box.checked)
    .map(({ dataset }) => ({ ...dataset, memory: Number(dataset.memory) }));
  const host = {
    name: part.dataset.hostName,
    count: wholeNumber(own?.value),
    memory: (own?.dataset.memory ?? "").split(" ").map(Number),
    free: Number(own?.dataset.free ?? Infinity),
    run: own?.dataset.runs,
  };
  const sentence =
    value("where") === "cpu" ? _("On the CPU of {host}.", { host: host.name }) : describeGpus(host, gpus);
  const drive = part.querySelector('[data-first]:not([hidden]) input[name^="storage-"]:checked')?.dataset.drive;
  return drive ? [sentence, _("Data from {drive}.", { drive })].join(" ") : sentence;
}

function showExecutors() {
  const radios = [...form.querySelectorAll('input[name="executor"]')];
  const hosts = hostParts().map((part) => ({
    ...form.querySelector(`input[name="host"][value="${part.dataset.host}"]`).dataset,
    name: part.dataset.hostName,
  }));
  const run = { isCommand: form.dataset.family === "command", onCpu: value("where") === "cpu" };
  for (const radio of radios) {
    const why = hosts.map((host) => executorBlocker(radio.value, run, host)).find(Boolean) ?? "";
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
  const [hosts, where] = [hostsOfRun(), value("where")];
  for (const part of form.querySelectorAll("[data-host], [data-on], [data-first]")) {
    const { host = hosts[0], on = where, first = hosts[0] } = part.dataset;
    part.hidden = !hosts.includes(host) || on !== where || first !== hosts[0];
  }
  for (const box of otherBoxes()) box.closest("label").hidden = box.dataset.other === hosts[0];
  for (const drawer of form.querySelectorAll("[data-drawer]")) showNumbers(drawer);
  showExecutors();
  const place = form.querySelector("[data-sum]");
  const parts = hostParts();
  const sentence = parts
    .map((part) => (parts.length > 1 ? `${part.dataset.hostName}: ${summary(part)}` : summary(part)))
    .join(" ");
  if (place.textContent !== sentence) place.textContent = sentence;
}

/** Copy the choice of a place into the form that shows another workload. */
function copyChoice() {
  const hosts = hostParts();
  for (const [name, entry] of new FormData(form)) {
    const part = form.elements[name]?.closest?.("[data-host]");
    const isElsewhere = hosts.length && part && !hosts.includes(part);
    const isIdle =
      name.startsWith("port-") && !form.querySelector(`[name="${name}"]`).closest("li").querySelector("input").checked;
    if (!KEPT.test(name) || isElsewhere || isIdle) continue;
    workloadForm.append(element("input", { type: "hidden", name, value: entry }));
  }
}

if (workloadForm) {
  workloadForm.querySelector("[data-show]").hidden = true;
  workloadForm.addEventListener("change", () => {
    if (form) copyChoice();
    workloadForm.requestSubmit();
  });
}
if (form) {
  form.addEventListener("input", ({ target }) => {
    if (target.dataset.count) takeNumber(target);
    if (target.dataset.all !== undefined) {
      for (const box of boxesOf(target.closest("[data-drawer]"))) box.checked = target.checked;
    }
    // Choosing a host port for a GPU chooses the GPU.
    if (target.dataset.portOf) target.closest("li").querySelector("input").checked = true;
    show();
  });
  form.addEventListener("focusout", show);
  // A browser may restore the fields of a page that is gone back to.
  window.addEventListener("pageshow", show);
  show();
}
