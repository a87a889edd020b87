// Live readings: one socket for all chassis of the page. Who wants frames listens to "falconweb:frame" on the document,
// with {chassis, at, series, values, value(key)}; who wants to know how fresh they are, to "falconweb:freshness".
import { decode } from "./frame.js";

export const LATE = 3000;
export const STALE = 10000;
const SIGN_IN_AGAIN = 4401;
const LONGEST_PAUSE = 30000;

const known = new Map(); // chassis id -> {series, places, revision, values, heard, skew}
let socket = null;
let attempts = 0;
let refusals = 0;
let signedOut = false;
let timer = 0;
let opened = 0;
let asked = "";

/** The chassis that the page shows. */
export const wanted = () => [
  ...new Set([...document.querySelectorAll("[data-chassis]")].map((one) => Number(one.dataset.chassis))),
];

/** How fresh a chassis is: live, late, stale, joining, offline or signed-out; and the age of its values in ms. */
export function freshness(chassis) {
  const one = known.get(chassis);
  const age = one?.heard ? Date.now() - one.heard : null;
  const state = connection();
  if (state !== "connected") return { state, age };
  if (age === null) return { state: Date.now() - opened > STALE ? "stale" : "joining", age };
  return { state: age > STALE ? "stale" : age > LATE ? "late" : "live", age };
}

/** How the page stands with the site itself: connected, joining, offline or signed-out. */
export function connection() {
  if (signedOut) return "signed-out";
  if (socket?.readyState === WebSocket.OPEN) return "connected";
  return attempts > 0 ? "offline" : "joining";
}

/** The newest frame of a chassis, or null. */
export function newest(chassis) {
  const one = known.get(chassis);
  return one?.values ? frameOf(chassis, one) : null;
}

function frameOf(chassis, one) {
  return {
    chassis,
    at: one.at,
    series: one.series,
    values: one.values,
    value: (key) => (one.places.has(key) ? one.values[one.places.get(key)] : NaN),
  };
}

function connect() {
  clearTimeout(timer);
  // Pages without a chassis are told of a sign-out as well; pages of nobody have no place for it.
  if (socket || signedOut || !document.getElementById("freshness")) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    attempts = 0;
    opened = Date.now();
    subscribe();
  };
  socket.onmessage = ({ data }) => {
    refusals = 0;
    if (typeof data === "string") hear(JSON.parse(data));
    else take(data);
  };
  socket.onclose = ({ code }) => {
    socket = null;
    // Another tab may have signed in anew meanwhile: its session is tried once before asking.
    if (code === SIGN_IN_AGAIN && refusals++ > 0) {
      signedOut = true;
      document.dispatchEvent(new CustomEvent("falconweb:signed-out"));
      return;
    }
    timer = setTimeout(connect, 500 + Math.random() * Math.min(LONGEST_PAUSE, 500 * 2 ** attempts++));
  };
}

/** Ask anew for what the page shows: key frames follow. */
export function subscribe() {
  asked = JSON.stringify({ subscribe: wanted() });
  if (socket?.readyState === WebSocket.OPEN) socket.send(asked);
  else connect();
}

/** Ask for what the page shows if that is not what was asked for. */
export function follow() {
  if (asked !== JSON.stringify({ subscribe: wanted() })) subscribe();
}

function hear(message) {
  if (message.type === "catalogue") {
    known.set(message.chassis, {
      series: message.series,
      places: new Map(message.series.map((series, place) => [series.key, place])),
      revision: message.revision,
      values: null,
      heard: known.get(message.chassis)?.heard ?? 0,
      skew: Date.now() - message.now * 1000,
    });
  } else if (message.type === "changed") {
    document.dispatchEvent(new CustomEvent("falconweb:changed", { detail: message }));
  } else if (message.type === "error" && message.chassis) {
    known.delete(message.chassis);
  }
}

function take(buffer) {
  const chassis = new DataView(buffer).getUint32(4, true);
  const one = known.get(chassis);
  if (!one) return;
  const frame = decode(buffer, one.values);
  if (!frame || frame.revision !== one.revision) {
    subscribe();
    return;
  }
  one.values = frame.values;
  one.at = frame.at;
  one.heard = frame.at * 1000 + one.skew;
  document.dispatchEvent(new CustomEvent("falconweb:frame", { detail: frameOf(chassis, one) }));
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || socket) return;
  attempts = 0;
  connect();
});
window.addEventListener("online", connect);
setInterval(() => document.dispatchEvent(new CustomEvent("falconweb:freshness")), 1000);
connect();
