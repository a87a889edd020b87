// The badge of alerts in the header of every page: how many are firing, how severe they are, and the worst of them as
// a list. It dispatches "falconweb:alarm" on the document; see worstSeverity.
import { element } from "../../site/dom.js";
import { closeLikeMenu } from "../../site/menu.js";

const ADDRESS = "/alerts/badge/";
const EVERY = 15_000; // ms
const HIDDEN_EVERY = 60_000; // ms, in a tab out of sight
const SIGNS = { Critical: "▲", Warning: "▼" };

let severity = "";
let timer = 0;
let menu = null;
let shown = "";
let isStopped = false;

/** The severity of the worst alert that nobody has acknowledged: "Critical", "Warning" or "". */
export const worstSeverity = () => severity;

function buildMenu() {
  const details = element("details", { className: "menu right alarm" }, element("summary"), element("ul"));
  closeLikeMenu(details);
  document.getElementById("freshness").after(details);
  return details;
}

function entry(alert) {
  const className = alert.severity.toLowerCase();
  const sign = element("span", { className, ariaHidden: "true" }, SIGNS[alert.severity] ?? "○");
  const state = alert.acknowledged ? ", acknowledged" : "";
  const words = element(
    "span",
    {},
    element("span", {}, `${alert.title}${alert.value ? `: ${alert.value}` : ""}`),
    element("small", {}, `${alert.severity}, ${alert.subject} of ${alert.chassis}${state}`),
  );
  return element("li", {}, element("a", { href: alert.url }, sign, words));
}

function showMenu(found) {
  const count = found.critical + found.warning;
  if (count > 0) menu ??= buildMenu();
  if (!menu) return;
  menu.hidden = count === 0;
  menu.classList.toggle("critical", found.worst === "Critical");
  const name = `${count} ${count === 1 ? "alert" : "alerts"}, ${found.critical} critical`;
  const summary = menu.querySelector("summary");
  summary.title = name;
  summary.replaceChildren(
    element("span", { ariaHidden: "true" }, `${SIGNS[found.worst] ?? ""} ${count}`),
    element("span", { className: "hidden" }, name),
  );
  const all = count > found.alerts.length ? `All ${count} alerts` : "All alerts";
  const link = element("li", {}, element("a", { href: "/alerts/" }, all));
  menu.querySelector("ul").replaceChildren(...found.alerts.map(entry), link);
}

function show(found) {
  severity = found.loudest;
  const text = JSON.stringify(found);
  if (text !== shown) {
    shown = text;
    showMenu(found);
  }
  document.dispatchEvent(new CustomEvent("falconweb:alarm"));
}

async function load() {
  clearTimeout(timer);
  if (isStopped) return;
  try {
    const answer = await fetch(ADDRESS, { headers: { Accept: "application/json" } });
    if (answer.ok && !answer.redirected) show(await answer.json());
  } catch {
    // No connection: the header shows it, and the badge stays as it was.
  }
  schedule(document.hidden ? HIDDEN_EVERY : EVERY);
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(load, pause);
}

if (document.getElementById("freshness")) {
  document.addEventListener("falconweb:signed-out", () => {
    isStopped = true;
  });
  document.addEventListener("falconweb:changed", ({ detail }) => schedule(500 + Math.random() * 1000 * detail.within));
  document.addEventListener("visibilitychange", () => document.hidden || load());
  load();
}
