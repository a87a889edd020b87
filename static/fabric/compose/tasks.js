// The task drawer: what the person has under way, on every page, until it is dismissed.
import { loadFragment } from "../../site/fragment.js";
import { _ } from "../../site/language.js";
import { announce } from "../../site/progress.js";
import { refresh, replace } from "../../site/refresh.js";
import { openChanges } from "./dialog.js";

const EVERY = 1000; // ms while something runs
const PAUSE = 500; // ms after a change; changes come in bursts
const NARROW = 700; // px
const STORE = "falconweb-tasks"; // what was dismissed, and whether the drawer is closed
const drawer = document.getElementById("tasks");
const received = document.createElement("div"); // what the server sent
let timer = 0;
let shown = "";
let words = new Map(); // task -> its state in words

/** What this browser remembers: { dismissed: ids, closed }. On a narrow screen the drawer is closed at first. */
function remembered() {
  const first = { dismissed: [], closed: innerWidth < NARROW };
  try {
    return { ...first, ...JSON.parse(localStorage.getItem(STORE)) };
  } catch {
    return first;
  }
}

const remember = (what) => localStorage.setItem(STORE, JSON.stringify({ ...remembered(), ...what }));

async function load() {
  clearTimeout(timer);
  timer = 0;
  if (document.hidden) return; // it is loaded when the tab becomes visible
  await loadFragment(received, drawer.dataset.address);
  const isPressed = drawer.matches(":active"); // the button stays until it is released
  if (!isPressed) show();
  schedule(isPressed || received.querySelector("[data-open]") ? EVERY : 0);
}

/** Load after a pause, 0 for never; what is scheduled already comes soon enough. */
function schedule(pause) {
  if (pause && !timer) timer = setTimeout(load, pause);
}

function show() {
  const { dismissed, closed } = remembered();
  const fresh = received.cloneNode(true);
  const present = new Set();
  for (const task of fresh.querySelectorAll("[data-task]")) {
    present.add(task.dataset.task);
    if (dismissed.includes(task.dataset.task)) task.remove();
  }
  if (dismissed.some((one) => !present.has(one))) remember({ dismissed: dismissed.filter((one) => present.has(one)) });
  if (!fresh.querySelector("[data-task]")) fresh.replaceChildren();
  if (fresh.innerHTML === shown) return;
  shown = fresh.innerHTML;
  for (const list of fresh.querySelectorAll("details")) list.open = !closed;
  const now = new Map([...fresh.querySelectorAll("[data-task]")].map((one) => [one.dataset.task, one.dataset.words]));
  const changed = [...now]
    .filter(([task, state]) => words.size && words.get(task) !== state)
    .map(([, state]) => state);
  announce(document.getElementById("tasks-status"), changed.join(" "), changed.join(" "));
  if (changed.length) refresh(); // the page shows what has ended as soon as the drawer does
  words = now;
  replace(drawer, fresh);
}

if (drawer) {
  load();
  document.addEventListener("falconweb:requested", load);
  document.addEventListener("falconweb:changed", ({ detail }) =>
    schedule(PAUSE + Math.random() * 1000 * detail.within),
  );
  document.addEventListener("visibilitychange", load);
  drawer.addEventListener("click", ({ target }) => {
    if (target.matches("[data-undo]")) {
      const values = target.dataset.undo.split(" ");
      const words =
        values.length > 1 ? _("{count} devices go back.", { count: values.length }) : _("The device goes back.");
      const plan = target.dataset.undoPlan;
      const title = plan ? `Undo: ${plan}` : ""; // is stored, like all titles in English
      openChanges(values, { verb: "undo", label: _("Undo"), words, title });
    }
    if (target.matches("[data-dismiss]")) {
      const { task } = target.closest("[data-task]").dataset;
      remember({ dismissed: [...remembered().dismissed, task] });
      show();
    }
    if (target.closest("summary")) remember({ closed: drawer.querySelector("details").open }); // it toggles next
  });
  drawer.addEventListener("submit", async (event) => {
    if (!event.submitter?.dataset.keep?.startsWith("cancel-")) return; // a draft has a page to be reviewed on
    event.preventDefault();
    const body = new FormData(event.target);
    event.submitter.disabled = true;
    await fetch(event.target.action, { method: "POST", body }).catch(() => null);
    load();
  });
}
