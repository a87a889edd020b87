// Live readings: one socket for all chassis of the page. It dispatches on the document "falconweb:frame" with {
// chassis, at, series, values, value(key) }, "falconweb:changed", "falconweb:signed-out", and "falconweb:freshness"
// each second.
import { composeBlocker, freshnessState, reconnectDelay } from "./connection.js";
import { decode } from "./frame.js";
import { shownChassis } from "./page-parts.js";

const SIGN_IN_AGAIN = 4401;

const catalogues = new Map(); // chassis id -> { series, places, revision, values, at, receivedAt, pauses, skew (ms) }
let socket = null;
let attempts = 0;
let refusals = 0;
let signedOut = false;
let timer = 0;
let openedAt = 0; // ms
let subscription = ""; // the message that was sent

/** How fresh a chassis is: { state, age of its values in ms, their period in ms or 0 }, see connection.js. */
export function freshness(chassis) {
  const { receivedAt, pauses = [0] } = catalogues.get(chassis) ?? {};
  const age = receivedAt ? Date.now() - receivedAt : null;
  const period = Math.min(...pauses);
  return { state: freshnessState(connection(), age, Date.now() - openedAt, period), age, period };
}

/** Why nothing may be attached to a chassis now, '' where it may. */
export const whyNotCompose = (chassis) => composeBlocker(freshness(chassis));

/** The state of the connection to the site: connected, joining, offline or signed-out. */
export function connection() {
  if (signedOut) return "signed-out";
  if (socket?.readyState === WebSocket.OPEN) return "connected";
  return attempts > 0 ? "offline" : "joining";
}

/** The newest frame of a chassis, or null. */
export function newestFrame(chassis) {
  const catalogue = catalogues.get(chassis);
  return catalogue?.values ? frameOf(chassis, catalogue) : null;
}

function frameOf(chassis, { at, series, places, values }) {
  return { chassis, at, series, values, value: (key) => values[places.get(key)] ?? NaN };
}

function connect() {
  clearTimeout(timer);
  // Pages without a chassis detect a sign-out too; pages without a signed-in person do not show it.
  if (socket || signedOut || !document.getElementById("freshness")) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    attempts = 0;
    openedAt = Date.now();
    subscribe();
  };
  socket.onmessage = ({ data }) => {
    refusals = 0;
    if (typeof data === "string") onMessage(JSON.parse(data));
    else onFrame(data);
  };
  socket.onclose = ({ code }) => {
    socket = null;
    // Another tab may have signed in again: its session is tried once.
    if (code === SIGN_IN_AGAIN && refusals++ > 0) {
      signedOut = true;
      document.dispatchEvent(new CustomEvent("falconweb:signed-out"));
      return;
    }
    timer = setTimeout(connect, reconnectDelay(attempts++));
  };
}

/** Subscribe to the chassis of the page; key frames follow. */
function subscribe() {
  subscription = JSON.stringify({ subscribe: shownChassis() });
  if (socket?.readyState === WebSocket.OPEN) socket.send(subscription);
  else connect();
}

/** Subscribe again where the page shows other chassis than before. */
export function updateSubscription() {
  if (subscription !== JSON.stringify({ subscribe: shownChassis() })) subscribe();
}

function onMessage(message) {
  if (message.type === "catalogue") {
    catalogues.set(message.chassis, {
      series: message.series,
      places: new Map(message.series.map((series, place) => [series.key, place])),
      revision: message.revision,
      values: null,
      receivedAt: catalogues.get(message.chassis)?.receivedAt ?? 0,
      pauses: catalogues.get(message.chassis)?.pauses,
      skew: Date.now() - message.now * 1000,
    });
  } else if (message.type === "changed") {
    document.dispatchEvent(new CustomEvent("falconweb:changed", { detail: message }));
  } else if (message.type === "error" && message.chassis) {
    catalogues.delete(message.chassis);
  }
}

function onFrame(buffer) {
  const chassis = new DataView(buffer).getUint32(4, true);
  const catalogue = catalogues.get(chassis);
  if (!catalogue) return;
  const frame = decode(buffer, catalogue.values);
  if (!frame || frame.revision !== catalogue.revision) {
    subscribe();
    return;
  }
  catalogue.values = frame.values;
  catalogue.at = frame.at;
  const receivedAt = frame.at * 1000 + catalogue.skew;
  // The shorter of the last two: after an outage the chassis is no slower than before.
  if (catalogue.receivedAt) {
    const pause = receivedAt - catalogue.receivedAt;
    catalogue.pauses = [catalogue.pauses?.[1] ?? pause, pause];
  }
  catalogue.receivedAt = receivedAt;
  document.dispatchEvent(new CustomEvent("falconweb:frame", { detail: frameOf(chassis, catalogue) }));
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || socket) return;
  attempts = 0;
  connect();
});
window.addEventListener("online", connect);
setInterval(() => document.dispatchEvent(new CustomEvent("falconweb:freshness")), 1000);
connect();
