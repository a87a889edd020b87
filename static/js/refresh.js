// Brings the parts of a page that are marked with data-refresh (and an id) up to date when the fabric changes.
import { loadFragment } from "./fragment.js";
import { follow } from "./live.js";

const PAUSE = 300; // ms; changes come in bursts
const AGAIN = 2000; // ms until the next try
const LEAVING = 10_000; // ms; another page, or a file, comes within that time
// What is marked with data-keep gets the focus back by that name, links by where they lead.
const FILLED_IN = "input, select, textarea, form *:not([data-keep])";
const shownAs = new WeakMap(); // parts to what the server sent for them
let timer = 0;
let running = false;
let left = -LEAVING; // when the page was left at last (ms): for a file it stays
let asking = new AbortController();
let due = false; // something has changed since all parts were brought up to date

const parts = () => [...document.querySelectorAll("[data-refresh]")];

/** Whether somebody is in the middle of something that a refresh would take away. */
const busy = (part) =>
  document.querySelector("dialog[open], .lifted, .pressed") ||
  (part.contains(document.activeElement) && document.activeElement.matches(FILLED_IN));

/** A place for the focus where what had it is gone: the part itself, or the page where that is empty now. */
function place(part) {
  if (!part.checkVisibility()) return document.getElementById("content");
  part.tabIndex = -1;
  return part;
}

/** Take over what somebody has chosen or written in a part, without being at it any more, into what replaces it. */
function keepFilledIn(part, now) {
  for (const field of part.querySelectorAll("select[id], textarea[id], input[id]:not([type=file], [type=hidden])")) {
    const next = now.querySelector(`#${CSS.escape(field.id)}`);
    if (!next) continue;
    if (field.type === "checkbox" || field.type === "radio") {
      if (field.checked !== field.defaultChecked) next.checked = field.checked;
    } else if (field.type === "select-one") {
      const first = Math.max(
        0,
        [...field.options].findIndex((one) => one.defaultSelected),
      );
      if (field.selectedIndex !== first && [...next.options].some((one) => one.value === field.value))
        next.value = field.value;
    } else if (field.value !== field.defaultValue) next.value = field.value;
  }
}

export async function refresh() {
  due = true;
  if (running) return;
  if (document.hidden || performance.now() < left + LEAVING || parts().some(busy)) {
    // Nothing is asked for until it can be shown; a tab in the background asks once somebody looks at it.
    if (!document.hidden) schedule(AGAIN);
    return;
  }
  running = true;
  due = false;
  asking = new AbortController();
  try {
    const answer = await fetch(location.href, { headers: { "X-Requested-With": "refresh" }, signal: asking.signal });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const now = fresh.getElementById(part.id);
      if (!now || busy(part)) {
        due ||= Boolean(now);
        continue;
      }
      // Untouched where it would be the same: so a text that somebody has marked stays marked.
      if ((shownAs.get(part) ?? part.innerHTML) === now.innerHTML) continue;
      shownAs.set(part, now.innerHTML);
      const node = document.activeElement?.closest?.("[data-node]")?.dataset.node;
      const keep = document.activeElement?.dataset?.keep;
      const link = document.activeElement?.getAttribute?.("href");
      const inside = part.contains(document.activeElement);
      // What somebody has opened, or closed, stays so.
      for (const shown of now.querySelectorAll("details[id]")) {
        const before = document.getElementById(shown.id);
        if (before) shown.open = before.open;
      }
      keepFilledIn(part, now);
      part.replaceChildren(...now.childNodes);
      if (inside && node) part.querySelector(`[data-node="${node}"]`)?.focus();
      if (inside && !keep && link)
        (part.querySelector(`a[href="${CSS.escape(link)}"]`) ?? place(part)).focus({ preventScroll: true });
      if (inside && keep)
        (part.querySelector(`[data-keep="${keep}"]`) ?? part.querySelector("[data-keep]") ?? place(part)).focus();
    }
    document.dispatchEvent(new CustomEvent("falconweb:refreshed"));
    follow();
  } catch {
    due = true; // the server is away: the next change, or the next try, brings it
  } finally {
    running = false;
    if (due) schedule(AGAIN);
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
  // `within` grows with how many look on: they do not all ask for the page at the same moment.
  document.addEventListener("falconweb:changed", ({ detail }) =>
    schedule(PAUSE + Math.random() * 1000 * detail.within),
  );
  // What a page shows may be gone once its form was sent: it is not asked for again while it is being left. Forms of
  // dialogs, and those that scripts send, leave no page.
  addEventListener("beforeunload", () => {
    left = performance.now();
    asking.abort();
  });
  document.addEventListener("visibilitychange", () => document.hidden || !due || refresh());
}
// Pages that follow no single chassis ask again by themselves.
const every = Number(document.querySelector("[data-refresh-every]")?.dataset.refreshEvery);
if (every > 0) setInterval(refresh, every * 1000);

// Parts with an address of their own (data-source) are loaded at once, and again once something has changed.
const sources = [...document.querySelectorAll("[data-source]")];
let sourceTimer = 0;

function loadSources() {
  sourceTimer = 0;
  for (const part of sources) loadFragment(part, part.dataset.source);
}

if (sources.length > 0) {
  for (const event of ["falconweb:changed", "falconweb:refreshed"]) {
    document.addEventListener(event, () => {
      if (!sourceTimer) sourceTimer = setTimeout(loadSources, AGAIN);
    });
  }
  loadSources();
}
