// The mark of alerts in the head of every page: how many ring, how bad they are, and the worst of them as a list.
// Who shows the worst state elsewhere (the title, the icon) listens to "falconweb:alarm" and asks `loudest`.
const ADDRESS = "/alerts/badge/";
const EVERY = 15000; // ms; a tab that nobody looks at asks less often
const HIDDEN_EVERY = 60000;
const SIGNS = { Critical: "▲", Warning: "▼" };

let loud = "";
let timer = 0;
let menu = null;
let shown = "";
let ended = false;

/** The severity of the worst alert that nobody has taken notice of: "Critical", "Warning" or "". */
export const loudest = () => loud;

function make() {
  const made = document.createElement("details");
  made.className = "menu right alarm";
  made.append(document.createElement("summary"), document.createElement("ul"));
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !made.open) return;
    made.open = false;
    made.querySelector("summary").focus();
  });
  made.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !made.contains(relatedTarget)) made.open = false;
  });
  document.addEventListener("click", ({ target }) => {
    if (!made.contains(target)) made.open = false;
  });
  document.getElementById("freshness").after(made);
  return made;
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function entry(alert) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = alert.url;
  const sign = element("span", SIGNS[alert.severity] ?? "○", alert.severity.toLowerCase());
  sign.setAttribute("aria-hidden", "true");
  const words = document.createElement("span");
  words.append(element("span", `${alert.title}${alert.value ? `: ${alert.value}` : ""}`));
  words.append(
    element(
      "small",
      `${alert.severity}, ${alert.subject} of ${alert.chassis}${alert.acknowledged ? ", acknowledged" : ""}`,
    ),
  );
  link.append(sign, words);
  item.append(link);
  return item;
}

function show(found) {
  loud = found.loudest;
  const count = found.critical + found.warning;
  const text = JSON.stringify(found);
  if (text !== shown) {
    shown = text;
    if (count > 0) menu ??= make();
    if (menu) {
      menu.hidden = count === 0;
      menu.classList.toggle("critical", found.worst === "Critical");
      const summary = menu.querySelector("summary");
      const name = `${count} ${count === 1 ? "alert" : "alerts"}, ${found.critical} critical`;
      summary.replaceChildren(element("span", `${SIGNS[found.worst] ?? ""} ${count}`));
      summary.firstChild.setAttribute("aria-hidden", "true");
      summary.append(element("span", name, "hidden"));
      summary.title = name;
      const all = document.createElement("li");
      const link = element("a", count > found.alerts.length ? `All ${count} alerts` : "All alerts");
      link.href = "/alerts/";
      all.append(link);
      menu.querySelector("ul").replaceChildren(...found.alerts.map(entry), all);
    }
  }
  document.dispatchEvent(new CustomEvent("falconweb:alarm"));
}

async function ask() {
  clearTimeout(timer);
  if (ended) return;
  try {
    const answer = await fetch(ADDRESS, { headers: { Accept: "application/json" } });
    if (answer.ok && !answer.redirected) show(await answer.json());
  } catch {
    // The site is away: the head says so already, and what rang is known as it was.
  }
  schedule(document.hidden ? HIDDEN_EVERY : EVERY);
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(ask, pause);
}

if (document.getElementById("freshness")) {
  document.addEventListener("falconweb:signed-out", () => (ended = true));
  document.addEventListener("falconweb:changed", ({ detail }) => schedule(500 + Math.random() * 1000 * detail.within));
  document.addEventListener("visibilitychange", () => document.hidden || ask());
  ask();
}
