// Keys and the attach dialog: pick a device up by drag, or by Space, and put it on a host port.
document.body.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-Requested-With"] = "htmx";
});

document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if (event.key === "/" && search && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    search.focus();
  }
});

if (document.getElementById("attach")) compose();

function compose() {
  // Looked up each time: a change of the fabric replaces the content.
  const attach = () => document.getElementById("attach");
  let picked = null;

  document.addEventListener("falconweb:changed", () => {
    if (picked || attach()?.open || document.activeElement?.closest("form")) return;
    const focused = document.activeElement?.getAttribute("data-device");
    htmx.ajax("GET", location.href, { target: "#content", select: "#content", swap: "outerHTML" })
      .then(() => focused && document.querySelector(`[data-device="${focused}"]`)?.focus());
  });

  const pick = (device) => {
    picked?.classList.remove("lifted");
    picked = device;
    for (const port of document.querySelectorAll("[data-host-port]")) {
      const fits = device !== null && port.dataset.drawer === device.dataset.drawer
        && port.dataset.hostPort !== device.dataset.expected
        && port.closest("[data-chassis]") === device.closest("[data-chassis]");
      port.classList.toggle("takes", fits);
    }
    device?.classList.add("lifted");
    const said = document.getElementById("picked");
    said.hidden = device === null;
    said.textContent = device === null ? "" :
      `Holding ${device.dataset.name}. Choose a marked host port, press Delete to detach it, Escape to put it back.`;
  };

  const ask = (device, port) => {
    const dialog = attach();
    const form = dialog.querySelector("form");
    form.elements.device.value = device.dataset.device;
    form.elements.expected.value = device.dataset.expected;
    form.elements.target.value = port ? port.dataset.hostPort : "";
    document.getElementById("attach-words").textContent = port
      ? `${device.dataset.name} leaves ${device.dataset.expected ? "the host it is attached to" : "the free devices"} and is attached to ${port.dataset.name}. Programs that use it on its present host lose it at once.`
      : `${device.dataset.name} is detached from its host. Programs that use it there lose it at once.`;
    dialog.showModal();
  };

  document.addEventListener("keydown", (event) => {
    const device = event.target.closest?.("[data-device]");
    const port = event.target.closest?.("[data-host-port]");
    if (event.key === " " && device) {
      event.preventDefault();
      pick(picked === device ? null : device);
      document.querySelector("[data-host-port].takes")?.focus();
    } else if ((event.key === " " || event.key === "Enter") && port?.classList.contains("takes")) {
      event.preventDefault();
      ask(picked, port);
    } else if (event.key === "Delete" && picked?.dataset.expected) {
      ask(picked, null);
    } else if (event.key === "Escape" && picked && !attach().open) {
      const back = picked;
      pick(null);
      back.focus();
    }
  });
  document.addEventListener("click", (event) => {
    const port = event.target.closest("[data-host-port].takes");
    if (picked && port) {
      event.preventDefault();
      ask(picked, port);
    }
  });

  // Pointer events, because SVG elements have no drag and drop of their own.
  let start = null;
  document.addEventListener("pointerdown", (event) => {
    const device = event.target.closest("[data-device]");
    if (device && event.button === 0) start = { device, x: event.clientX, y: event.clientY, moved: false };
  });
  document.addEventListener("pointermove", (event) => {
    if (start && !start.moved && Math.hypot(event.clientX - start.x, event.clientY - start.y) > 6) {
      start.moved = true;
      pick(start.device);
    }
  });
  document.addEventListener("pointerup", (event) => {
    if (start?.moved) {
      const port = document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-host-port].takes");
      const device = start.device;
      device.addEventListener("click", (click) => click.preventDefault(), { once: true });
      if (port) ask(device, port);
      else pick(null);
    }
    start = null;
  });
  document.addEventListener("dragstart", (event) => {
    if (event.target.closest?.("[data-device]")) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (event.target.id === "attach-no") attach().close();
  });
  // Close events do not bubble, so they are caught on their way down.
  document.addEventListener("close", () => pick(null), true);
}
