// Freshness of the shown values: of each chassis, and of the page as a whole. Times are ms.
import { _ } from "../../site/language.js";

const LATE = 3000;
const STALE = 10_000;
const LONGEST_PAUSE = 30_000;
// Worst first.
const SENTENCES = {
  "signed-out": _("▲ You are signed out: sign in again"),
  offline: _("▲ No connection to FalconWeb; trying again"),
  stale: _("▲ Chassis not sending"),
  joining: _("○ Connecting"),
  late: _("◐ Late"),
  live: _("● Live"),
  connected: _("● Live"), // pages without a chassis: the site answers
};

/** The state of a chassis whose newest values are of `age` (null without any): live, late, stale, joining, or that of
 * the connection to the site, which has been open for `open`. `period` is that of its values, 0 if unknown: a service
 * without a report of all values is read as often as it bears it. */
export function freshnessState(connection, age, open, period = 0) {
  if (connection !== "connected") return connection;
  if (age === null) return open > STALE ? "stale" : "joining";
  if (age > Math.max(STALE, 3 * period)) return "stale";
  return age > Math.max(LATE, 1.5 * period) ? "late" : "live";
}

/** The worst of the states of the page's chassis; that of the connection where it has none. */
export function worstState(states, connection) {
  return states.length > 0 ? Object.keys(SENTENCES).find((state) => states.includes(state)) : connection;
}

/** Whether values in a state may be out of date. */
export const isOutdated = (state) => ["signed-out", "offline", "stale"].includes(state);

/** The sentence of the header, for the worst of the states of the page's chassis. */
export function headerSentence(worst, states) {
  if (worst !== "stale" || states.length < 2) return SENTENCES[worst];
  const stale = states.filter((state) => state === "stale").length;
  return _("▲ {stale} of {all} chassis not sending", { stale, all: states.length });
}

/** Why nothing may be attached to a chassis in a state, '' where it may. */
export function composeBlocker({ state, age }) {
  if (state === "signed-out") return _("You are signed out. Sign in again.");
  if (state === "offline") {
    return _("There is no connection to FalconWeb, so what you see may be old. It is being tried again.");
  }
  if (state === "stale") {
    const seen = formatAge(age);
    return _("This chassis was last heard of {time}, so what you see may be old. Attaching waits until it answers.", {
      time: seen,
    });
  }
  return "";
}

export const formatAge = (age) =>
  age === null ? _("before this page was opened") : _("{seconds} s ago", { seconds: Math.round(age / 1000) });

/** The wait before another attempt to connect: longer after each, with jitter, so that not all clients reconnect
 * together. */
export const reconnectDelay = (attempts, random = Math.random()) =>
  500 + random * Math.min(LONGEST_PAUSE, 500 * 2 ** attempts);
