// The limits of series, at which alerts fire: those that chassis report for their sensors, and those of rules.

import { _ } from "../../site/language.js";

const EVERY = 60_000; // ms
const known = new Map(); // chassis -> { at (ms), limits: key -> [{ value, is_upper, severity }] }

/** The limits of a series, as far as they are loaded. */
export function limitsOf(chassis, key) {
  const found = known.get(chassis);
  if (!found || performance.now() - found.at > EVERY) load(chassis, found?.limits ?? {});
  return known.get(chassis).limits[key] ?? [];
}

async function load(chassis, before) {
  const entry = { at: performance.now(), limits: before };
  known.set(chassis, entry);
  try {
    const answer = await fetch(`/alerts/limits/${chassis}/`, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) return;
    entry.limits = await answer.json();
    document.dispatchEvent(new CustomEvent("falconweb:limits", { detail: { chassis } }));
  } catch {
    // No connection: the header shows it, and they are loaded again later.
  }
}

const isBeyond = (value, { value: limit, is_upper: isUpper }) => (isUpper ? value > limit : value < limit);

/** The worst limit that a value is beyond, null where it is beyond none. */
export function exceededLimit(value, limits) {
  const beyond = limits.filter((one) => isBeyond(value, one));
  return beyond.find(({ severity }) => severity === "Critical") ?? beyond[0] ?? null;
}

/** ' of 85': the limit that a value is beyond, or would be first; '' without one. */
export function limitWords(value, limits) {
  const exceeded = exceededLimit(value, limits);
  const uppers = limits.filter((one) => one.is_upper).map((one) => one.value);
  if (!Number.isFinite(value) || (!exceeded && uppers.length === 0)) return "";
  if (exceeded && !exceeded.is_upper) return _(", below {limit}", { limit: exceeded.value });
  return _(" of {limit}", { limit: exceeded ? exceeded.value : Math.min(...uppers) });
}
