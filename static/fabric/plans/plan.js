// The page of a plan: its progress, and whether it can be applied.

import { announce, showElapsed } from "../../site/progress.js";
import { whyNotCompose } from "../../telemetry/live/live.js";

const facts = () => document.querySelector("[data-plan-state]");

/** Offer to apply the plan only while that is possible, with the reason where it is not. */
function updateForm() {
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

function update() {
  announce(document.getElementById("plan-status"), facts()?.dataset.status, facts()?.dataset.planState);
  updateForm();
}

document.addEventListener("falconweb:refreshed", update);
document.addEventListener("falconweb:freshness", () => {
  showElapsed();
  update();
});
updateForm();
