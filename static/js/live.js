// Live readings of the chassis on the page: one socket, reconnected with full jitter, states told in words.
import { decode } from "./frame.js";

const LATE = 3000;
const STALE = 10000;
const SIGN_IN_AGAIN = 4401;
const freshness = document.getElementById("freshness");
const chassis = new Map();
let socket = null;
let attempts = 0;
let signedOut = false;
let timer = 0;

function wanted() {
  return [...new Set([...document.querySelectorAll("[data-chassis]")].map((e) => Number(e.dataset.chassis)))];
}

function connect() {
  clearTimeout(timer);
  if (signedOut || wanted().length === 0) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    attempts = 0;
    for (const one of chassis.values()) one.values = null;
    socket.send(JSON.stringify({ subscribe: wanted() }));
  };
  socket.onmessage = ({ data }) => (typeof data === "string" ? hear(JSON.parse(data)) : take(data));
  socket.onclose = ({ code }) => {
    socket = null;
    if (code === SIGN_IN_AGAIN) {
      signedOut = true;
      location.reload();
      return;
    }
    const most = Math.min(30000, 500 * 2 ** attempts++);
    timer = setTimeout(connect, Math.random() * most);
  };
}

function hear(message) {
  if (message.type === "catalogue") {
    chassis.set(message.chassis, { series: message.series, revision: message.revision, values: null, heard: 0 });
  } else if (message.type === "changed") {
    document.dispatchEvent(new CustomEvent("falconweb:changed"));
  }
}

function take(buffer) {
  const one = chassis.get(new DataView(buffer).getUint32(4, true));
  if (!one) return;
  const frame = decode(buffer, one.values);
  if (!frame || frame.revision !== one.revision) {
    socket?.send(JSON.stringify({ subscribe: wanted() }));
    return;
  }
  one.values = frame.values;
  one.heard = Date.now();
  show(one);
}

function show(one) {
  const byDevice = new Map();
  one.series.forEach((series, i) => {
    const key = `${series.object}/${series.id}`;
    if (!byDevice.has(key)) byDevice.set(key, []);
    byDevice.get(key).push([series, one.values[i]]);
  });
  for (const text of document.querySelectorAll("[data-reading]")) {
    const found = byDevice.get(`device/${text.dataset.reading}`);
    if (!found) continue;
    const of = (end) => found.find(([series]) => series.key.endsWith(end))?.[1];
    const load = of("utilisation_percent");
    const heat = of("temperature_celsius");
    text.textContent = [
      load >= 0 ? `${load.toFixed(0)} %` : "",
      Number.isFinite(heat) ? `${heat.toFixed(0)} °C` : "",
    ].filter(Boolean).join(" · ");
    const slot = text.closest(".slot");
    const step = load >= 0 ? Math.min(5, Math.floor(load / 17)) : 0;
    for (let i = 0; i < 6; i++) slot.classList.toggle(`load-${i}`, i === step);
  }
  const table = document.querySelector("[data-live-device]");
  if (table) {
    const rows = [
      ...(byDevice.get(`device/${table.dataset.liveDevice}`) ?? []),
      ...(byDevice.get(`port/${table.dataset.livePort}`) ?? []),
    ];
    table.tBodies[0].replaceChildren(...rows.map(([series, value]) => {
      const row = document.createElement("tr");
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = series.label;
      const cell = document.createElement("td");
      cell.className = "number";
      cell.textContent = format(value, series.unit);
      row.append(name, cell);
      return row;
    }));
    document.getElementById("live-empty").hidden = rows.length > 0;
  }
}

function format(value, unit) {
  if (!Number.isFinite(value)) return "no value";
  if (unit === "B/s") return `${(value / 1e9).toFixed(2)} GB/s`;
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${unit}`;
}

// Two different losses are two different sentences.
setInterval(() => {
  if (wanted().length === 0) return;
  const now = Date.now();
  const ages = [...chassis.values()].map((one) => now - one.heard);
  const worst = Math.max(0, ...ages);
  const state = !socket || socket.readyState !== WebSocket.OPEN ? "offline"
    : chassis.size === 0 ? "joining" : worst > STALE ? "stale" : worst > LATE ? "late" : "live";
  freshness.textContent = {
    offline: "▲ No connection to FalconWeb; trying again",
    joining: "Connecting",
    stale: "▲ A chassis stopped sending; its values are old",
    late: "Late",
    live: "● Live",
  }[state];
  freshness.classList.toggle("bad", state === "offline" || state === "stale");
  document.body.classList.toggle("stale", state === "offline" || state === "stale");
}, 1000);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !socket) connect();
});
connect();
