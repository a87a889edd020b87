// The dialog that confirms changes of devices: what they are, what they would do, and the request of them. The page
// stays; "falconweb:requested" is dispatched on the document once something was requested.
import { element } from "../../site/dom.js";
import { loadFragment, sendForm } from "../../site/fragment.js";
import { refresh } from "../../site/refresh.js";
import { updateSubscription, whyNotCompose } from "../../telemetry/live/live.js";

const LOST = "There is no connection to FalconWeb. Look at your tasks before you try again.";
const dialog = document.getElementById("attach");
const part = (name) => document.getElementById(`attach-${name}`);
const chassisOf = (node) => Number(node.closest("[data-chassis]").dataset.chassis);
let pending = null; // { devices, values, verb, chassis (ids), outcome }

/** Whether the dialog is open. */
export const isOpen = () => Boolean(dialog?.open);

/** The host ports that devices could go to, as options of a select: of one device on its own page, or of a drawer. */
function targets([device, ...others]) {
  const own = device.querySelector("select");
  const { drawer } = device.dataset;
  const all = own
    ? [...own.options].filter((one) => one.value)
    : [...(device.closest("[data-chassis]").querySelector("template[data-targets]")?.content.children ?? [])].filter(
        (one) => one.dataset.drawer === drawer,
      );
  const here = [device, ...others];
  if (here.some((one) => one.dataset.drawer !== drawer || chassisOf(one) !== chassisOf(device))) return [];
  return all
    .filter((one) => here.some(({ dataset }) => dataset.expected !== one.value))
    .map((one) => new Option(one.text, one.value));
}

/** Ask for the confirmation of changes; `target` is a host port's id, '' to detach, undefined where it is chosen. */
export function openDialog(chosen, target) {
  const devices = [...chosen];
  const select = part("target");
  const options = targets(devices);
  if (devices.some((one) => one.dataset.expected)) options.push(new Option("no host: detach", ""));
  // To detach is never the proposal; a host port that none of them is at comes first.
  const ports = options.filter((one) => one.value);
  const isNew = ({ value }) => devices.every(({ dataset }) => dataset.expected !== value);
  const first = (ports.find(isNew) ?? ports[0])?.value;
  if (target === undefined && first === undefined) options.unshift(new Option("Choose where to", "none"));
  select.replaceChildren(...options);
  select.value = target ?? first ?? "none";
  select.onchange = () => describe(devices);
  open({ devices, chassis: [...new Set(devices.map(chassisOf))] });
  describe(devices);
  // Enter confirms what was pointed at; a host port that was not, and a detach, are looked at first.
  if (target) part("yes").focus();
  else if (target === "") part("no").focus();
}

/** Ask for the confirmation of changes that are known already: `verb` is what they do, `words` say it in a sentence,
 * `title` names the plan that they become. */
export function openChanges(values, verb, words, title = "") {
  open({ devices: [], chassis: [] });
  dialog.querySelector("form").elements.title.value = title;
  part("title").textContent = verb;
  part("words").textContent = words;
  show(verb, values);
  part("yes").focus();
}

function open(what) {
  pending = { ...what, values: [], verb: "", reason: "", outcome: "" };
  dialog.querySelector("form").elements.title.value = "";
  part("impact").replaceChildren();
  part("target").parentElement.hidden = pending.devices.length === 0;
  dialog.showModal();
}

/** Say what would happen with the chosen host port. */
function describe(devices) {
  const { value, selectedOptions } = part("target");
  const moved = devices.filter(({ dataset }) => value !== "none" && dataset.expected !== value);
  const isAttached = moved.some(({ dataset }) => dataset.expected);
  const verb = value === "" ? "Detach" : isAttached ? "Move" : "Attach";
  const to = selectedOptions[0]?.textContent;
  part("title").textContent = `${verb} ${moved.length > 1 ? `${moved.length} devices` : "device"}`;
  part("words").textContent = words(moved, verb, to);
  show(
    verb,
    moved.map(({ dataset }) => `${dataset.device}:${value}:${dataset.expected}`),
  );
}

function words(moved, verb, to) {
  if (moved.length === 0) return "There is no host port that it could be attached to.";
  const [{ dataset }] = moved;
  if (moved.length > 1) {
    const done = { Attach: `attached to ${to}`, Move: `moved to ${to}`, Detach: "detached" }[verb];
    return `${moved.length} devices are ${done}.`;
  }
  if (verb === "Detach") return `${dataset.name} is detached from ${dataset.place}.`;
  return `${dataset.name} ${verb === "Move" ? `leaves ${dataset.place} and ` : ""}is attached to ${to}.`;
}

/** Load what the changes would do, device by device. */
async function show(verb, values) {
  const now = pending;
  Object.assign(now, { verb, values, reason: "", possible: values.length });
  const form = dialog.querySelector("form");
  for (const one of form.querySelectorAll("input[name=change]")) one.remove();
  form.append(...values.map((value) => element("input", { type: "hidden", name: "change", value })));
  update();
  if (values.length === 0) return;
  const query = new URLSearchParams(values.map((value) => ["change", value]));
  const failure = "What this would do could not be loaded.";
  await loadFragment(part("impact"), `${form.getAttribute("action")}?${query}`, failure);
  if (now !== pending || now.values !== values || !dialog.open) return;
  const impact = part("impact").querySelector("[data-impact]");
  if (!impact) return;
  now.possible = Number(impact.dataset.possible);
  now.reason = impact.dataset.reason;
  now.chassis = [...impact.querySelectorAll("[data-chassis]")].map((one) => Number(one.dataset.chassis));
  updateSubscription();
  update();
}

function update() {
  if (!pending || !dialog.open) return;
  const { verb, values, possible, outcome } = pending;
  const reason = outcome || pending.chassis.map(whyNotCompose).find(Boolean) || pending.reason;
  if (part("reason").textContent !== reason) part("reason").textContent = reason;
  const yes = part("yes");
  yes.textContent =
    possible > 0 && possible < values.length ? `${verb} ${possible} of ${values.length} now` : `${verb} now`;
  const isOff = values.length === 0 || reason !== "";
  if (isOff && document.activeElement === yes) part("no").focus();
  yes.disabled = isOff;
  // A draft changes nothing yet: values of a chassis may be old, and a rule may be met by another change.
  part("draft").disabled = values.length === 0 || outcome !== "";
  part("no").textContent = outcome ? "Close" : "Cancel";
}

dialog?.addEventListener("submit", async (event) => {
  if (event.submitter?.id === "attach-draft") return;
  event.preventDefault();
  const now = pending;
  if (now.isSending) return; // a double click requests it once
  now.isSending = true;
  const answer = await sendForm(event.target, event.submitter, "compose", LOST);
  now.isSending = false;
  if (answer.done) {
    document.dispatchEvent(new CustomEvent("falconweb:requested"));
    refresh();
  }
  // What was left out stays to be read.
  if (answer.done && !answer.sentence) dialog.close();
  else {
    now.outcome = answer.sentence;
    update();
  }
});
document.addEventListener("submit", (event) => {
  if (!dialog || !event.target.matches("[data-give]")) return;
  event.preventDefault();
  const values = new FormData(event.target).getAll("change");
  const what = values.length > 1 ? `${values.length} devices are` : "The device is";
  if (values.length) openChanges(values, "Attach", `${what} attached to ${event.target.dataset.give}.`);
});
dialog?.addEventListener("close", () => {
  pending = null;
  part("impact").replaceChildren();
  updateSubscription();
});
document.addEventListener("falconweb:freshness", update);
part("no")?.addEventListener("click", () => dialog.close());
