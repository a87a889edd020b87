// The dialog that confirms changes of devices: what they are, what they would do, and the request of them. The page
// stays; "falconweb:requested" is dispatched on the document once something was requested.
import { element } from "../../site/dom.js";
import { loadFragment, sendForm } from "../../site/fragment.js";
import { _, _n } from "../../site/language.js";
import { refresh } from "../../site/refresh.js";
import { updateSubscription, whyNotCompose } from "../../telemetry/live/live.js";

const LOST = _("There is no connection to FalconWeb. Look at your tasks before you try again.");
// By verb: the title of the dialog, and the words of the button that does all of it, or what is possible of it.
const VERBS = {
  attach: {
    title: (count) => _n("Attach device", "Attach {count} devices", count),
    all: _("Attach now"),
    some: (values) => _("Attach {possible} of {count} now", values),
  },
  move: {
    title: (count) => _n("Move device", "Move {count} devices", count),
    all: _("Move now"),
    some: (values) => _("Move {possible} of {count} now", values),
  },
  detach: {
    title: (count) => _n("Detach device", "Detach {count} devices", count),
    all: _("Detach now"),
    some: (values) => _("Detach {possible} of {count} now", values),
  },
  undo: {
    all: _("Undo now"),
    some: (values) => _("Undo {possible} of {count} now", values),
  },
};
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
  if (devices.some((one) => one.dataset.expected)) options.push(new Option(_("no host: detach"), ""));
  // To detach is never the proposal; a host port that none of them is at comes first.
  const ports = options.filter((one) => one.value);
  const isNew = ({ value }) => devices.every(({ dataset }) => dataset.expected !== value);
  const first = (ports.find(isNew) ?? ports[0])?.value;
  if (target === undefined && first === undefined) options.unshift(new Option(_("Choose where to"), "none"));
  select.replaceChildren(...options);
  select.value = target ?? first ?? "none";
  select.onchange = () => describe(devices);
  open({ devices, chassis: [...new Set(devices.map(chassisOf))] });
  describe(devices);
  // Enter confirms what was pointed at; a host port that was not, and a detach, are looked at first.
  if (target) part("yes").focus();
  else if (target === "") part("no").focus();
}

/** Ask for the confirmation of changes that are known already: `verb` is what they do, `label` and `words` say it in a
 * word and in a sentence, `title` names the plan that they become. */
export function openChanges(values, { verb, label, words, title = "" }) {
  open({ devices: [], chassis: [] });
  dialog.querySelector("form").elements.title.value = title;
  part("title").textContent = label;
  part("words").textContent = words;
  show(verb, values);
  part("yes").focus();
}

function open(what) {
  pending = { ...what, values: [], verb: "", reason: "", refusal: "", outcome: "" };
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
  const verb = value === "" ? "detach" : isAttached ? "move" : "attach";
  const to = selectedOptions[0]?.textContent;
  part("title").textContent = VERBS[verb].title(moved.length || 1);
  part("words").textContent = words(moved, verb, to);
  show(
    verb,
    moved.map(({ dataset }) => `${dataset.device}:${value}:${dataset.expected}`),
  );
}

function words(moved, verb, to) {
  if (moved.length === 0) return _("There is no host port that it could be attached to.");
  const [{ dataset }] = moved;
  const { name, place } = dataset;
  if (moved.length > 1) {
    const count = moved.length;
    if (verb === "detach") return _("{count} devices are detached.", { count });
    if (verb === "move") return _("{count} devices are moved to {to}.", { count, to });
    return _("{count} devices are attached to {to}.", { count, to });
  }
  if (verb === "detach") return _("{name} is detached from {place}.", { name, place });
  if (verb === "move") return _("{name} leaves {place} and is attached to {to}.", { name, place, to });
  return _("{name} is attached to {to}.", { name, to });
}

/** Load what the changes would do, device by device. */
async function show(verb, values) {
  const now = pending;
  Object.assign(now, { verb, values, reason: "", refusal: "", possible: values.length });
  const form = dialog.querySelector("form");
  for (const one of form.querySelectorAll("input[name=change]")) one.remove();
  form.append(...values.map((value) => element("input", { type: "hidden", name: "change", value })));
  update();
  if (values.length === 0) return;
  const query = new URLSearchParams(values.map((value) => ["change", value]));
  const failure = _("What this would do could not be loaded.");
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
  const said = reason || pending.refusal;
  if (part("reason").textContent !== said) part("reason").textContent = said;
  const yes = part("yes");
  const { all, some } = VERBS[verb];
  yes.textContent = possible > 0 && possible < values.length ? some({ possible, count: values.length }) : all;
  const isOff = values.length === 0 || reason !== "";
  if (isOff && document.activeElement === yes) part("no").focus();
  yes.disabled = isOff;
  // A draft changes nothing yet: values of a chassis may be old, and a rule may be met by another change.
  part("draft").disabled = values.length === 0 || outcome !== "";
  part("no").textContent = outcome ? _("Close") : _("Cancel");
}

// Why the changes were not added to a draft, told until others are chosen: to do them now stays possible.
dialog?.addEventListener("falconweb:refused", ({ detail }) => {
  pending.refusal = detail;
  update();
});

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
  const to = event.target.dataset.give;
  const words =
    values.length > 1
      ? _("{count} devices are attached to {to}.", { count: values.length, to })
      : _("The device is attached to {to}.", { to });
  if (values.length) openChanges(values, { verb: "attach", label: _("Attach"), words });
});
dialog?.addEventListener("close", () => {
  pending = null;
  part("impact").replaceChildren();
  updateSubscription();
});
document.addEventListener("falconweb:freshness", update);
part("no")?.addEventListener("click", () => dialog.close());
