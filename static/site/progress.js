// A plan or a run under way: its status is read aloud, and its seconds are counted between refreshes.
import { _ } from "./language.js";

const ANNOUNCE_EVERY = 5000; // ms: more would flood a screen reader
let announcedAt = 0;
let refreshedAt = performance.now();

document.addEventListener("falconweb:refreshed", () => {
  refreshedAt = performance.now();
});

/** Put a status into a live region: immediately if the state has changed, else every ANNOUNCE_EVERY. */
export function announce(region, status, state) {
  if (!status || !region || region.textContent === status) return;
  if (Date.now() - announcedAt < ANNOUNCE_EVERY && region.dataset.state === state) return;
  announcedAt = Date.now();
  region.dataset.state = state;
  region.textContent = status;
}

/** Show how long it has taken so far, from the seconds that the server sent. */
export function showElapsed() {
  const place = document.querySelector("[data-seconds]");
  if (!place) return;
  const seconds = Number(place.dataset.seconds) + (performance.now() - refreshedAt) / 1000;
  place.textContent = _("{seconds} s so far", { seconds: Math.round(seconds) });
}
