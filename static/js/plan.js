// The page of a plan: says how far it is, counts the seconds, and lets nobody apply what cannot be applied.
import { whyNotCompose } from "./live-values.js";

const SAY_EVERY = 5000; // ms: more would flood a screen reader
let saidAt = 0;
let loaded = performance.now();
const facts = () => document.querySelector("[data-plan-state]");

function say() {
  const words = facts()?.dataset.said;
  const place = document.getElementById("plan-said");
  if (!words || !place || place.textContent === words) return;
  const state = facts().dataset.planState;
  if (Date.now() - saidAt < SAY_EVERY && place.dataset.state === state) return;
  saidAt = Date.now();
  place.dataset.state = state;
  place.textContent = words;
}

function count() {
  const place = document.querySelector("[data-seconds]");
  if (place)
    place.textContent = `${Math.round(Number(place.dataset.seconds) + (performance.now() - loaded) / 1000)} s so far`;
}

/** Offer the application only while it can be done, with the reason where it cannot. */
function offer() {
  const form = document.querySelector("[data-apply]");
  if (!form) return;
  const isDraft = facts()?.dataset.planState === "draft";
  for (const part of [form, ...document.querySelectorAll("[data-draft-only]")]) part.hidden = !isDraft;
  const chassis = [...document.querySelectorAll("#plan-now [data-chassis]")].map((one) => Number(one.dataset.chassis));
  const reason = facts()?.dataset.whyNot || chassis.map(whyNotCompose).find(Boolean) || "";
  const force = form.querySelector("[data-force]");
  force.hidden = facts()?.dataset.inUse === undefined;
  if (force.hidden) force.querySelector("input").value = "";
  const place = form.querySelector("[data-reason]");
  if (place.textContent !== reason) place.textContent = reason;
  form.querySelector("button").disabled = reason !== "";
}

document.addEventListener("falconweb:refreshed", () => {
  loaded = performance.now();
  say();
  offer();
});
document.addEventListener("falconweb:freshness", () => {
  count();
  say();
  offer();
});
offer();
