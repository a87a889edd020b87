// Refreshes the parts of a page that are marked with data-refresh (and an id) when the fabric changes, and those that
// have an address of their own (data-source).

import { updateSubscription } from "../telemetry/live/live.js";
import { loadFragment } from "./fragment.js";

const PAUSE = 300; // ms; changes come in bursts
const RETRY = 2000; // ms
const LEAVING = 10_000; // ms in which another page, or a file, is loaded
// Elements with data-keep regain the focus by that name, links by their address.
const FORM_CONTROLS = "input, select, textarea, form *:not([data-keep])";
const received = new WeakMap(); // part -> the HTML that the server sent for it
let timer = 0;
let running = false;
let leftAt = -LEAVING; // ms, when the page was left; for the download of a file it stays
let request = new AbortController();
let isOutdated = false; // something has changed since all parts were refreshed

const parts = () => [...document.querySelectorAll("[data-refresh]")];

/** Whether a refresh would interrupt the person. */
const isBusy = (part) =>
  document.querySelector("dialog[open], .lifted, .pressed") ||
  (part.contains(document.activeElement) && document.activeElement.matches(FORM_CONTROLS));

/** The element to focus if the focused one is gone: the part itself, or the page if that is empty now. */
function focusPlace(part) {
  if (!part.checkVisibility()) return document.getElementById("content");
  part.tabIndex = -1;
  return part;
}

/** Copy the input of the person in a part to its replacement. */
function copyInput(part, replacement) {
  for (const field of part.querySelectorAll("select[id], textarea[id], input[id]:not([type=file], [type=hidden])")) {
    const next = replacement.querySelector(`#${CSS.escape(field.id)}`);
    if (!next) continue;
    if (field.type === "checkbox" || field.type === "radio") {
      if (field.checked !== field.defaultChecked) next.checked = field.checked;
    } else if (field.type === "select-one") {
      const first = Math.max(
        0,
        [...field.options].findIndex((one) => one.defaultSelected),
      );
      const isOffered = [...next.options].some((one) => one.value === field.value);
      if (field.selectedIndex !== first && isOffered) next.value = field.value;
    } else if (field.value !== field.defaultValue) next.value = field.value;
  }
}

/** Replace the content of a part by that of another element; the focus, open details and input stay. */
export function replace(part, replacement) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const node = focused?.closest("[data-node]")?.dataset.node;
  const keep = focused?.dataset.keep;
  const link = focused?.getAttribute("href");
  for (const details of replacement.querySelectorAll("details[id]")) {
    const before = document.getElementById(details.id);
    if (before) details.open = before.open;
  }
  copyInput(part, replacement);
  part.replaceChildren(...replacement.childNodes);
  if (node) part.querySelector(`[data-node="${node}"]`)?.focus();
  if (keep) {
    const kept = part.querySelector(`[data-keep="${keep}"]`) ?? part.querySelector("[data-keep]");
    (kept ?? focusPlace(part)).focus();
  } else if (link) {
    (part.querySelector(`a[href="${CSS.escape(link)}"]`) ?? focusPlace(part)).focus({ preventScroll: true });
  }
}

/** Refresh the page's parts now, or when it no longer interrupts the person. */
export async function refresh() {
  isOutdated = true;
  if (running) return;
  if (document.hidden || performance.now() < leftAt + LEAVING || parts().some(isBusy)) {
    // A hidden tab refreshes when it becomes visible.
    if (!document.hidden) schedule(RETRY);
    return;
  }
  running = true;
  isOutdated = false;
  request = new AbortController();
  try {
    const answer = await fetch(location.href, { headers: { "X-Requested-With": "refresh" }, signal: request.signal });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const replacement = fresh.getElementById(part.id);
      if (!replacement) continue;
      if (isBusy(part)) {
        isOutdated = true;
        continue;
      }
      const html = replacement.innerHTML;
      // Unchanged parts stay, so that selected text stays selected and nothing is read aloud.
      if ((received.get(part) ?? part.innerHTML) === html) continue;
      received.set(part, html);
      replace(part, replacement);
    }
    document.dispatchEvent(new CustomEvent("falconweb:refreshed"));
    updateSubscription();
  } catch {
    isOutdated = true; // no connection: the next change, or the next attempt, refreshes it
  } finally {
    running = false;
    if (isOutdated) schedule(RETRY);
  }
}

function schedule(pause) {
  if (timer) return;
  timer = setTimeout(() => {
    timer = 0;
    refresh();
  }, pause);
}

if (parts().length > 0) {
  // `within` grows with the number of browsers: they do not all request the page at the same moment.
  document.addEventListener("falconweb:changed", ({ detail }) =>
    schedule(PAUSE + Math.random() * 1000 * detail.within),
  );
  // The content of a page may be gone after its form was sent: it is not requested while the page is being left. Forms
  // of dialogs, and those that scripts send, leave no page.
  addEventListener("beforeunload", () => {
    leftAt = performance.now();
    request.abort();
  });
  document.addEventListener("visibilitychange", () => document.hidden || !isOutdated || refresh());
}
// Pages that subscribe to no single chassis refresh on a timer.
const seconds = Number(document.querySelector("[data-refresh-every]")?.dataset.refreshEvery);
if (seconds > 0) setInterval(refresh, seconds * 1000);

// Parts with an address of their own are loaded immediately, and again after a change.
const sources = [...document.querySelectorAll("[data-source]")];
let sourceTimer = 0;

function loadSources() {
  sourceTimer = 0;
  for (const part of sources) loadFragment(part, part.dataset.source);
}

if (sources.length > 0) {
  for (const event of ["falconweb:changed", "falconweb:refreshed"]) {
    document.addEventListener(event, () => {
      if (!sourceTimer) sourceTimer = setTimeout(loadSources, RETRY);
    });
  }
  loadSources();
}
