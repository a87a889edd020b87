// Shows how many events have been recorded since the page was loaded. Rows stay in place until the new ones are
// requested.
import { _, _n } from "../../site/language.js";

const EVERY = 5000; // ms
const MOST = 999;
const bar = document.querySelector("[data-news]");
const title = document.title;

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch(bar.dataset.news, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) return;
    const { count } = await answer.json();
    if (count === 0) return;
    const many = count > MOST ? _("More than {count}", { count: MOST }) : String(count);
    const text = _n("{many} new event: show it", "{many} new events: show them", count, { many });
    const link = bar.querySelector("a");
    if (link.textContent === text) return;
    link.textContent = text;
    bar.hidden = false;
    document.title = `(${many}) ${title}`;
  } catch {
    // No connection: it is counted again later.
  }
}

if (bar) {
  setInterval(update, EVERY);
  document.addEventListener("visibilitychange", update);
}
