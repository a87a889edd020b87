// Brings the parts of a page that are marked with data-refresh (and an id) up to date when the fabric changes.
import { subscribe } from "./live.js";

const PAUSE = 300; // changes come in bursts
let timer = 0;
let again = false;
let running = false;

/** Whether somebody is in the middle of something that a refresh would take away. */
const busy = (part) =>
  document.querySelector("dialog[open]") || document.querySelector(".lifted")
  || (part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, form *"));

export async function refresh() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Requested-With": "refresh" } });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-refresh]")) {
      const now = fresh.getElementById(part.id);
      if (!now || busy(part)) {
        again ||= Boolean(now);
        continue;
      }
      const node = document.activeElement?.closest?.("[data-node]")?.dataset.node;
      const inside = part.contains(document.activeElement);
      part.replaceChildren(...now.childNodes);
      if (inside && node) part.querySelector(`[data-node="${node}"]`)?.focus();
    }
    document.dispatchEvent(new CustomEvent("falconweb:refreshed"));
    subscribe();
  } catch {
    again = true; // the server is away: the next change, or the next try, brings it
  } finally {
    running = false;
    if (again) {
      again = false;
      schedule(2000);
    }
  }
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(refresh, pause);
}

if (document.querySelector("[data-refresh]")) {
  document.addEventListener("falconweb:changed", () => schedule(PAUSE));
}
// Pages that follow no single chassis ask again by themselves.
const every = Number(document.querySelector("[data-refresh-every]")?.dataset.refreshEvery);
if (every > 0) setInterval(() => document.hidden || refresh(), every * 1000);
