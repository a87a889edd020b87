// Attach, detach and move on the topology and in the list: devices are picked up, by handle, checkbox, drag or Space,
// placed on a host port, and confirmed.
import { boxByKey } from "../../site/keyboard.js";
import { _, _n } from "../../site/language.js";
import { isOpen, openDialog } from "../compose/dialog.js";
import { drawLasso } from "./lasso.js";

const GHOST_OFFSET = 14; // px from the pointer
const picked = []; // devices: a box of the picture, or a button of the list, in the order they were picked up
let last = null; // the device that a range begins at
const chassisOf = (node) => node.closest("[data-chassis]").dataset.chassis;

/** What picks a device up: its handle in the picture, its checkbox in the list; null where it is not movable. */
function gripOf(device) {
  const [before, after] = [device?.previousElementSibling, device?.nextElementSibling];
  return after?.matches("[data-handle]") ? after : before?.matches("[data-pick]") ? before : null;
}

const deviceOf = (grip) => (grip.matches("[data-pick]") ? grip.nextElementSibling : grip.previousElementSibling);

/** The devices that are picked up together with another one: of its drawer. */
const isBeside = (device, other) =>
  device.dataset.drawer === other.dataset.drawer && chassisOf(device) === chassisOf(other);

/** Hold these devices, and no others. */
function hold(devices) {
  for (const device of picked) markPicked(device, false);
  picked.splice(0, Infinity, ...devices);
  for (const device of picked) markPicked(device, true);
  const count = picked.length;
  for (const port of document.querySelectorAll("[data-host-port]")) {
    const fits =
      count > 0 &&
      picked.every((one) => isBeside(one, port)) &&
      picked.some(({ dataset }) => dataset.expected !== port.dataset.hostPort);
    port.classList.toggle("takes", fits);
  }
  const bar = document.getElementById("held");
  if (!bar) return;
  bar.classList.toggle("held", count > 0);
  document.getElementById("held-attach").hidden = count === 0;
  document.getElementById("held-detach").hidden = !picked.some(({ dataset }) => dataset.expected);
  document.getElementById("held-back").hidden = count === 0;
  const status = document.getElementById("picked");
  if (count === 0) status.textContent = "";
  else status.replaceChildren(...heldWords());
}

function markPicked(device, isHeld) {
  device.classList.toggle("lifted", isHeld);
  const grip = gripOf(device);
  if (grip?.matches("[data-pick]")) grip.checked = isHeld;
  else grip?.setAttribute("aria-pressed", String(isHeld));
}

/** What is held, and what to do next. */
function heldWords() {
  const [first] = picked;
  const count = picked.length;
  const what = count === 1 ? first.dataset.name : _n("{count} device", "{count} devices", count);
  const isOneDrawer = picked.every((one) => isBeside(one, first));
  const isInPicture = first.matches("a");
  const next = !isOneDrawer
    ? _("They are in several drawers: they can only be detached together.")
    : !isInPicture
      ? ""
      : document.querySelector("[data-host-port].takes")
        ? _("Choose a marked host port.")
        : _("There is no other host port for its drawer.");
  const keys = document.createElement("span");
  keys.className = "by-keys";
  keys.textContent = _n("Escape puts it back.", "Escape puts them back.", count);
  return [[_("Holding {what}.", { what }), next, ""].join(" "), keys];
}

/** Pick one more device up, or put it back. */
function toggle(device) {
  hold(picked.includes(device) ? picked.filter((one) => one !== device) : [...picked, device]);
  last = device;
}

/** Pick up all movable devices of a drawer from the last one to this one. */
function extend(device) {
  const all = [...document.querySelectorAll("[data-device]")].filter((one) => gripOf(one) && isBeside(one, device));
  const ends = [all.indexOf(last), all.indexOf(device)].sort((one, other) => one - other);
  if (ends[0] < 0) toggle(device);
  else hold([...new Set([...picked, ...all.slice(ends[0], ends[1] + 1)])]);
}

/** Put everything back, and focus the last device. */
function putBack() {
  const back = picked.at(-1);
  hold([]);
  back?.focus({ preventScroll: true });
}

/** The nearest node of the picture in the direction of an arrow key. */
function neighbour(node, key) {
  const nodes = [...node.closest("[data-chassis]").querySelectorAll("a[data-node]")];
  const boxes = nodes.map((one) => one.getBoundingClientRect());
  return nodes[boxByKey(key, node.getBoundingClientRect(), boxes)];
}

/** Make one node of each picture a tab stop; arrow keys move from there. */
function updateTabStops() {
  for (const picture of document.querySelectorAll("svg.topology")) {
    const nodes = [...picture.querySelectorAll("a[data-node]")];
    const current =
      nodes.find((node) => node.contains(document.activeElement)) ??
      nodes.find((node) => node.dataset.device) ??
      nodes[0];
    for (const node of nodes) node.setAttribute("tabindex", node === current ? "0" : "-1");
  }
}

/** Highlight the path of a node. */
function highlight(node) {
  const picture = node?.closest("svg.topology");
  for (const other of document.querySelectorAll("svg.topology.focused")) {
    other.classList.remove("focused");
    for (const lit of other.querySelectorAll(".lit")) lit.classList.remove("lit");
  }
  if (!picture) return;
  const names = new Set([node.dataset.node]);
  if (node.dataset.to) names.add(node.dataset.to);
  if (node.dataset.hostPort) {
    for (const device of picture.querySelectorAll(`[data-to="${node.dataset.node}"]`)) names.add(device.dataset.node);
  }
  if (names.size < 2) return; // no path to highlight
  for (const name of names) {
    for (const part of picture.querySelectorAll(`[data-node="${name}"], .link.${name}`)) part.classList.add("lit");
  }
  picture.classList.add("focused");
}

document.addEventListener("focusin", (event) => {
  const node = event.target.closest?.("a[data-node]");
  if (node) updateTabStops();
  highlight(node);
});
document.addEventListener("falconweb:refreshed", updateTabStops);
updateTabStops();

document.addEventListener("keydown", (event) => {
  const node = event.target.closest?.("a[data-node]");
  if (node && event.key.startsWith("Arrow")) {
    const next = neighbour(node, event.key);
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
});

if (document.getElementById("attach")) {
  document.addEventListener("keydown", (event) => {
    const device = event.target.closest?.("a[data-device]");
    const port = event.target.closest?.("[data-host-port]");
    if (event.key === " " && device) {
      event.preventDefault();
      if (!gripOf(device)) return; // missing, busy, or not movable by this person
      if (event.shiftKey) extend(device);
      else if (event.ctrlKey || picked.includes(device)) toggle(device);
      else {
        toggle(device);
        document.querySelector("[data-host-port].takes")?.focus();
      }
    } else if ((event.key === " " || event.key === "Enter") && port?.classList.contains("takes")) {
      event.preventDefault();
      openDialog(picked, port.dataset.hostPort);
    } else if (event.key === "Delete" && picked.some(({ dataset }) => dataset.expected) && !isOpen()) {
      openDialog(picked, "");
    } else if (event.key === "Escape" && picked.length && !isOpen()) {
      putBack();
    } else if (event.key === "ArrowRight" && !event.defaultPrevented && event.target.matches?.("body, #content")) {
      document.querySelector("a[data-device]")?.focus(); // into the first picture
    }
  });
  document.addEventListener("click", (event) => {
    const port = event.target.closest("[data-host-port].takes");
    if (picked.length && port) {
      event.preventDefault();
      openDialog(picked, port.dataset.hostPort);
    }
    const grip = event.target.closest("[data-handle], [data-pick]");
    if (grip) {
      const device = deviceOf(grip);
      if (event.shiftKey) extend(device);
      else toggle(device);
      if (grip.matches("[data-handle]")) device.focus({ preventScroll: true });
    }
    const row = event.target.closest("button[data-compose]");
    if (row) openDialog(picked.includes(row) ? picked : [row]);
    if (event.target.id === "held-attach") openDialog(picked);
    if (event.target.id === "held-detach") openDialog(picked, "");
    if (event.target.id === "held-back") putBack();
  });

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-compose-form]");
    if (!form) return;
    event.preventDefault();
    openDialog([form], form.elements.target.value);
  });

  drawLasso("svg.topology", "a[data-device]", (devices, { shiftKey }) => {
    hold([...new Set([...(shiftKey ? picked : []), ...devices.filter(gripOf)])]);
    last = picked.at(-1) ?? null;
  });

  // Pointer events, because SVG elements have no drag and drop. A mouse drags the whole box, a finger the handle:
  // elsewhere it scrolls.
  let start = null;
  const ghost = document.createElement("div");
  ghost.className = "ghost";
  const release = () => {
    start?.device.classList.remove("pressed");
    ghost.remove();
    start = null;
  };
  document.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    release();
    const handle = event.target.closest("[data-handle]");
    const device = handle?.previousElementSibling ?? event.target.closest("svg [data-device]");
    if (device && gripOf(device) && (handle || event.pointerType === "mouse")) {
      start = { device, handle, before: [...picked], x: event.clientX, y: event.clientY, moved: false };
      device.classList.add("pressed"); // until it is released, no refresh replaces it
    }
  });
  document.addEventListener("pointermove", (event) => {
    if (start && !start.moved && Math.hypot(event.clientX - start.x, event.clientY - start.y) > 6) {
      start.moved = true;
      if (!picked.includes(start.device)) hold([start.device]);
      last = start.device;
      ghost.textContent = picked.length;
      document.body.append(ghost);
    }
    if (start?.moved) {
      ghost.style.transform = `translate(${event.clientX + GHOST_OFFSET}px, ${event.clientY + GHOST_OFFSET}px)`;
    }
  });
  document.addEventListener("pointerup", (event) => {
    if (start?.moved) {
      const over = document.elementFromPoint(event.clientX, event.clientY);
      const port = over?.closest("[data-host-port].takes");
      // The click that may follow a drag opens nothing.
      const stop = (click) => click.preventDefault();
      document.addEventListener("click", stop, { capture: true, once: true });
      setTimeout(() => document.removeEventListener("click", stop, { capture: true }));
      if (port) openDialog(picked, port.dataset.hostPort);
      else hold(start.before);
    }
    release();
  });
  document.addEventListener("pointercancel", () => {
    if (start?.moved) hold(start.before);
    release();
  });
  document.addEventListener("dragstart", (event) => {
    if (event.target.closest?.("[data-device]")) event.preventDefault();
  });
  // Close events do not bubble, so they are captured. The focus returns to the picked-up device.
  document.addEventListener("close", (event) => event.target.id === "attach" && putBack(), true);
}
