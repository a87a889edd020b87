// Attach, detach and move on the topology: pick a device up by its handle, by drag or by Space, place it on a host
// port, confirm.
import { boxByKey } from "../../site/keyboard.js";
import { whyNotCompose } from "../../telemetry/live/live.js";

let picked = null;
const dialog = () => document.getElementById("attach");
const handleOf = (device) => (device?.nextElementSibling?.matches("[data-handle]") ? device.nextElementSibling : null);
const chassisOf = (node) => Number(node.closest("[data-chassis]").dataset.chassis);

function pick(device) {
  picked?.classList.remove("lifted");
  handleOf(picked)?.setAttribute("aria-pressed", "false");
  picked = device;
  handleOf(picked)?.setAttribute("aria-pressed", "true");
  for (const port of document.querySelectorAll("[data-host-port]")) {
    const fits =
      device !== null &&
      port.dataset.drawer === device.dataset.drawer &&
      port.dataset.hostPort !== device.dataset.expected &&
      chassisOf(port) === chassisOf(device);
    port.classList.toggle("takes", fits);
  }
  device?.classList.add("lifted");
  document.getElementById("held").classList.toggle("held", device !== null);
  document.getElementById("held-detach").hidden = !device?.dataset.expected;
  document.getElementById("held-back").hidden = device === null;
  const status = document.getElementById("picked");
  if (device === null) {
    status.textContent = "";
    return;
  }
  const targets = document.querySelectorAll("[data-host-port].takes").length;
  const keys = document.createElement("span");
  keys.className = "by-keys";
  keys.textContent = `${device.dataset.expected ? " Delete detaches it." : ""} Escape puts it back.`;
  const next = targets ? "Choose a marked host port." : "There is no other host port for its drawer.";
  status.replaceChildren(`Holding ${device.dataset.name}. ${next}`, keys);
}

/** Cancel the move of the picked-up device, and focus it. */
function putBack() {
  const back = picked;
  pick(null);
  back?.focus({ preventScroll: true });
}

/** The host ports that a device could go to, as options of a select. */
function targets(device) {
  const own = device.querySelector("select");
  const all = own
    ? [...own.options].filter((one) => one.value)
    : [...(device.closest("[data-chassis]").querySelector("template[data-targets]")?.content.children ?? [])].filter(
        (one) => one.dataset.drawer === device.dataset.drawer && one.value !== device.dataset.expected,
      );
  return all.map((one) => new Option(one.text, one.value));
}

/** Open the dialog that confirms an operation and shows its impact; `target` is a host port's id, '' to detach. */
function openDialog(device, target) {
  const opened = dialog();
  const form = opened.querySelector("form");
  form.elements.device.value = device.dataset.device;
  form.elements.expected.value = device.dataset.expected;
  const select = form.elements.target;
  select.replaceChildren(...targets(device));
  if (device.dataset.expected) select.add(new Option("no host: detach", ""));
  select.value = target ?? select.options[0]?.value ?? "";
  const describe = () => {
    const from = device.dataset.expected ? device.dataset.place : "";
    const to = select.value ? select.selectedOptions[0]?.textContent : "";
    const verb = !to ? "Detach" : from ? "Move" : "Attach";
    document.getElementById("attach-title").textContent = `${verb} device`;
    document.getElementById("attach-yes").textContent = `${verb} now`;
    document.getElementById("attach-words").textContent = to
      ? `${device.dataset.name} ${from ? `leaves ${from} and ` : ""}is attached to ${to}.`
      : from
        ? `${device.dataset.name} is detached from ${from}.`
        : "There is no host port to attach it to.";
    document.getElementById("attach-impact").textContent = from
      ? "Checks running processes first; refused if in use. On a host without an agent, programs lose it at once."
      : "No other device, host or tenant is touched.";
    const reason = whyNotCompose(chassisOf(device));
    document.getElementById("attach-reason").textContent = reason;
    document.getElementById("attach-yes").disabled = reason !== "" || !(to || from);
    // A draft changes nothing yet: values of a chassis may be old.
    document.getElementById("attach-draft").disabled = !(to || from);
  };
  select.onchange = describe;
  describe();
  opened.showModal();
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

if (dialog()) {
  document.addEventListener("keydown", (event) => {
    const device = event.target.closest?.("a[data-device]");
    const port = event.target.closest?.("[data-host-port]");
    if (event.key === " " && device) {
      event.preventDefault();
      if (!handleOf(device)) return; // missing, busy, or not movable by this person
      pick(picked === device ? null : device);
      document.querySelector("[data-host-port].takes")?.focus();
    } else if ((event.key === " " || event.key === "Enter") && port?.classList.contains("takes")) {
      event.preventDefault();
      openDialog(picked, port.dataset.hostPort);
    } else if (event.key === "Delete" && picked?.dataset.expected && !dialog().open) {
      openDialog(picked, "");
    } else if (event.key === "Escape" && picked && !dialog().open) {
      putBack();
    }
  });
  document.addEventListener("click", (event) => {
    const port = event.target.closest("[data-host-port].takes");
    if (picked && port) {
      event.preventDefault();
      openDialog(picked, port.dataset.hostPort);
    }
    const handle = event.target.closest("[data-handle]");
    if (handle) {
      const device = handle.previousElementSibling;
      if (picked === device) putBack();
      else {
        pick(device);
        device.focus({ preventScroll: true });
      }
    }
    const row = event.target.closest("button[data-compose]");
    if (row) openDialog(row);
    if (event.target.id === "held-detach") openDialog(picked, "");
    if (event.target.id === "held-back") putBack();
    if (event.target.id === "attach-no") dialog().close();
  });

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-compose-form]");
    if (!form) return;
    event.preventDefault();
    openDialog(form, form.elements.target.value);
  });

  // Pointer events, because SVG elements have no drag and drop. A mouse drags the whole box, a finger the handle:
  // elsewhere it scrolls.
  let start = null;
  const release = () => {
    start?.device.classList.remove("pressed");
    start = null;
  };
  document.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    release();
    const handle = event.target.closest("[data-handle]");
    const device = handle?.previousElementSibling ?? event.target.closest("svg [data-device]");
    if (device && handleOf(device) && (handle || event.pointerType === "mouse")) {
      start = { device, handle, before: picked, x: event.clientX, y: event.clientY, moved: false };
      device.classList.add("pressed"); // until it is released, no refresh replaces it
    }
  });
  document.addEventListener("pointermove", (event) => {
    if (start && !start.moved && Math.hypot(event.clientX - start.x, event.clientY - start.y) > 6) {
      start.moved = true;
      pick(start.device);
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
      const isShakyClick = start.handle && over?.closest("[data-handle]") === start.handle;
      if (port) openDialog(start.device, port.dataset.hostPort);
      else pick(isShakyClick ? start.before : null);
    }
    release();
  });
  document.addEventListener("pointercancel", () => {
    if (start?.moved) pick(null);
    release();
  });
  document.addEventListener("dragstart", (event) => {
    if (event.target.closest?.("[data-device]")) event.preventDefault();
  });
  // Close events do not bubble, so they are captured. The focus returns to the picked-up device.
  document.addEventListener(
    "close",
    (event) => {
      if (event.target.id !== "attach") return;
      putBack();
    },
    true,
  );
}
