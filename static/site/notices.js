// The bell in the header of every page: how many alerts fire and how severe they are, which own work has ended, and
// both as a list. It dispatches "falconweb:alarm" on the document; see worstSeverity.
import { element } from "./dom.js";
import { severityLabel } from "./format.js";
import { _, _n } from "./language.js";

const EVERY = 15_000; // ms
const HIDDEN_EVERY = 60_000; // ms, in a tab out of sight
export const SIGNS = { Critical: "▲", Warning: "△" };
const menu = document.getElementById("notices");
const panel = menu?.querySelector(".panel");
const form = menu?.querySelector("form");

let severity = "";
let timer = 0;
let due = 0; // ms, when it loads next
let shown = "";
let isStopped = false;

/** The worst status that the person may see, without what has been acknowledged: "Critical", "Warning" or "". */
export const worstSeverity = () => severity;

function alertEntry(alert) {
  const className = alert.severity.toLowerCase();
  const sign = element("span", { className, ariaHidden: "true" }, SIGNS[alert.severity] ?? "○");
  const named = { severity: severityLabel(alert.severity), subject: alert.subject, ago: alert.ago };
  const about = alert.acknowledged
    ? _("{severity}, {subject}, acknowledged, {ago}", named)
    : _("{severity}, {subject}, {ago}", named);
  const words = element(
    "span",
    {},
    element("span", {}, `${alert.title}${alert.value ? `: ${alert.value}` : ""}`),
    element("small", {}, about),
  );
  return element("li", {}, element("a", { href: alert.url }, sign, words));
}

function workEntry(work) {
  const { state, ago } = work;
  const about = work.is_new ? _("{state}, {ago}, new", { state, ago }) : _("{state}, {ago}", { state, ago });
  const words = element("span", {}, element("span", {}, work.words), element("small", {}, about));
  const sign = element("span", { className: `state ${work.look}`, ariaHidden: "true" });
  return element("li", { className: work.is_new ? "new" : "" }, element("a", { href: work.url }, sign, words));
}

function showMenu(found) {
  const alerts = found.critical + found.warning;
  const count = alerts + found.unseen;
  menu.classList.toggle("critical", found.worst === "Critical");
  const name = [
    _n("{count} alert, {critical} critical", "{count} alerts, {critical} critical", alerts, found),
    _("{unseen} new of your work", found),
  ].join(", ");
  menu.querySelector("summary").title = name;
  menu.querySelector("[data-count]").textContent = count ? `${SIGNS[found.worst] ?? ""} ${count}`.trim() : "";
  menu.querySelector("[data-name]").textContent = _("Notifications: {what}", { what: name });
  const all = alerts > found.alerts.length ? _("All {count} alerts", { count: alerts }) : _("All alerts");
  const link = element("li", {}, element("a", { href: "/alerts/" }, all));
  const [firing, work] = menu.querySelectorAll("ul");
  firing.replaceChildren(...found.alerts.map(alertEntry), link);
  work.replaceChildren(...found.work.map(workEntry));
  menu.querySelector("[data-no-work]").hidden = found.work.length > 0;
  form.hidden = found.unseen === 0;
}

function show(found) {
  severity = found.status;
  const text = JSON.stringify(found);
  // Nothing is replaced that somebody goes through by keyboard.
  if (text !== shown && !panel.contains(document.activeElement)) {
    shown = text;
    showMenu(found);
  }
  document.dispatchEvent(new CustomEvent("falconweb:alarm"));
}

async function load(options = {}) {
  clearTimeout(timer);
  timer = 0;
  if (isStopped) return;
  try {
    const answer = await fetch(form.action, { headers: { Accept: "application/json" }, ...options });
    if (answer.ok && !answer.redirected) show(await answer.json());
  } catch {
    // No connection: the header shows it, and the bell stays as it was.
  }
  schedule(document.hidden ? HIDDEN_EVERY : EVERY);
}

/** Load after a pause, or earlier: many changes do not put it off. */
function schedule(pause) {
  const at = performance.now() + pause;
  if (timer && due <= at) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(load, pause);
}

if (menu) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    menu.querySelector("summary").focus(); // the button goes
    load({ method: "POST", body: new FormData(form) });
  });
  document.addEventListener("falconweb:signed-out", () => {
    isStopped = true;
  });
  document.addEventListener("falconweb:changed", ({ detail }) => schedule(500 + Math.random() * 1000 * detail.within));
  document.addEventListener("visibilitychange", () => document.hidden || load());
  load();
}
