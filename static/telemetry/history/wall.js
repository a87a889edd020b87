// A dashboard on a wall: full screen by a button, and what changes on the dashboard within a minute, also then.
import { updateSubscription } from "../live/live.js";
import { buildPanels } from "./history.js";

const REPEAT_EVERY = 60_000; // ms
const part = document.getElementById("panels");

/** What the panels show: their titles, subjects and ranges. */
const contentOf = (root) =>
  JSON.stringify([...root.querySelectorAll("[data-panel], [data-charts]")].map(({ dataset }) => ({ ...dataset })));

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("panels");
    if (!fresh || contentOf(fresh) === contentOf(part)) return;
    part.replaceChildren(...fresh.childNodes);
    buildPanels();
    updateSubscription();
  } catch {
    // No connection: the next minute.
  }
}

document.getElementById("full-screen").addEventListener("click", () => document.documentElement.requestFullscreen());
document.addEventListener("visibilitychange", update);
setInterval(update, REPEAT_EVERY);
