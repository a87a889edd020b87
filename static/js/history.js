// The telemetry page: charts of any range, live at its right end while it ends now. The address says all that is shown,
// so that back, forward and a shared link bring the same.

import { shownAs } from "./axes.js";
import { Chart, chartsOf, stylesOf } from "./chart.js";
import { refill } from "./chart-schedule.js";
import { step as stepWords } from "./format.js";

const POINTS = 600;
const place = document.getElementById("history");
const trouble = document.getElementById("trouble");
const resolution = document.getElementById("resolution");
const pauseAll = document.getElementById("pause-all");
const panels = place
  ? [...place.querySelectorAll("[data-panel]")].map((section) => ({
      section,
      data: section.dataset,
      chart: null,
      series: null,
      asked: 0,
    }))
  : [];
const view = place && {
  live: "live" in place.dataset,
  seconds: Number(place.dataset.seconds),
  since: Number(place.dataset.since),
  until: Number(place.dataset.until),
};
let paused = false;
const iso = (at) => new Date(Math.round(at) * 1000).toISOString().slice(0, 19);

/** What is asked for: of a live view the end is 'now', by the server's clock. */
function range() {
  if (!view.live) return { since: view.since, until: view.until };
  return { since: `-${Math.round(view.seconds)}s`, until: "now" };
}

function addressOf(panel, path, points) {
  const { subjects, metrics } = panel.data;
  const { since, until } = range();
  return `/api/v1/telemetry/${path}?${new URLSearchParams({ subjects, metrics, since, until, points, stats: "band" })}`;
}

/** Ask for what a panel shows; tell whether there is nothing to be asked again. */
async function load(panel) {
  panel.asked += 1;
  const { asked } = panel;
  const width = panel.section.clientWidth || POINTS;
  let answer, found;
  try {
    answer = await fetch(addressOf(panel, "", Math.max(60, Math.min(POINTS, width - 64))));
    found = await answer.json();
  } catch {
    return false; // the server is away, or a proxy answers for it: the header says so, and the next look brings it
  }
  if (asked !== panel.asked) return true; // another range was chosen meanwhile
  tell(answer.ok ? "" : found.detail);
  if (answer.ok) show(panel, found);
  return answer.status < 500;
}

function tell(words) {
  trouble.textContent = words;
  trouble.hidden = !words;
}

function show(panel, found) {
  const series = found.series;
  const same = panel.chart && panel.series && series.map(keyOf).join() === panel.series.map(keyOf).join();
  panel.series = series;
  if (!same) make(panel, series, found);
  panel.section.removeAttribute("aria-busy");
  const { chart } = panel;
  chart.options.seconds = view.seconds;
  chart.options.span = view.live
    ? `of the last ${stepWords(view.seconds)}`
    : `from ${iso(found.since)} to ${iso(found.until)} UTC`;
  chart.set(found, view.live ? null : [found.since, found.until]);
  chart.button.hidden = !view.live;
  const nothing = series.length === 0 || series.every(({ mean }) => mean.every((value) => value === null));
  chart.say(nothing ? whyNothing(found) : "");
  resolution.textContent = `Each point is ${stepWords(found.step)}${found.step > 1 ? ": its mean, with its lowest and highest behind" : ""}.`;
}

function whyNothing({ gaps, left_out: left }) {
  if (gaps.length > 0) return `Nothing was read: ${gaps[0].reason}`;
  return left[0]?.why ?? "Nothing was measured in this range. Choose a later one.";
}

const keyOf = (one) => `${one.subject} ${one.metric}`;

function make(panel, series, found) {
  const { data, section } = panel;
  const names = JSON.parse(data.names);
  const styles = stylesOf(series.map((one) => ({ thing: one.subject, quantity: one.metric })));
  const several = new Set(series.map((one) => one.subject)).size > 1;
  const labels = new Set(series.map((one) => one.label)).size > 1;
  const lines = series.map((one, nth) => ({
    name: [several ? names[one.subject] : "", labels || !several ? one.label : ""].filter(Boolean).join(" "),
    unit: one.unit,
    made: one.made_of,
    ...styles[nth],
  }));
  const before = panel.chart;
  before?.destroy();
  panel.chart = new Chart(section, lines, {
    title: data.title || (series[0] ? `${series[0].name}, ${series[0].place}` : (found.left_out[0]?.subject ?? "")),
    ...shownAs(series[0]?.unit ?? data.unit),
    group: data.group || null,
    seconds: view.seconds,
    span: "",
    tableWords: "As a table",
    rows: 120,
    zoom,
    backfill: () => load(panel),
    csv: () => {
      location.assign(addressOf(panel, "table/", POINTS));
      return true;
    },
  });
  Object.assign(panel.chart, { visible: before?.visible ?? false, filled: before?.filled ?? null }); // not asked for once more
  panel.chart.paused = paused;
  const made = series.map((one) => one.made_of).find(Boolean);
  if (made) {
    const words = Object.assign(document.createElement("p"), {
      className: "faint made",
      textContent: `Each line is the ${made}.`,
    });
    words.textContent =
      new Set(series.map((one) => one.made_of)).size > 1
        ? series
            .filter((one) => one.made_of)
            .map((one) => `${names[one.subject] ?? one.name}: ${one.made_of}`)
            .slice(0, 4)
            .join("; ")
        : `${series.length > 1 ? "Each line is the" : "It is the"} ${made}.`;
    panel.chart.legend.after(words);
  }
}

/** Values of a frame for the lines of a panel; null where it is about none of them. */
function valuesOf(panel, frame) {
  if (!panel.series?.some((one) => one.parts.some((part) => part.chassis_id === frame.chassis))) return null;
  return panel.series.map((one) =>
    combined(one, one.parts.map((part) => current(part, frame)).filter(Number.isFinite)),
  );
}

// Parts of other chassis keep the value of their own newest frame; error counters are told as rates.
const newest = new Map();
const counters = new Map();

function current({ chassis_id: chassis, key }, frame) {
  const name = `${chassis} ${key}`;
  if (chassis !== frame.chassis) {
    const kept = newest.get(name);
    return kept && frame.at - kept.at < 3 ? kept.value : NaN;
  }
  const value = key.endsWith("/rate") ? rate(name, frame.at, frame.value(key.slice(0, -5))) : frame.value(key);
  newest.set(name, { at: frame.at, value });
  return value;
}

function rate(name, at, total) {
  const before = counters.get(name);
  if (before?.at === at) return before.rate;
  const found = before && total >= before.total ? (total - before.total) / (at - before.at) : NaN;
  counters.set(name, { at, total, rate: found });
  return found;
}

function combined({ combine }, values) {
  if (values.length === 0) return NaN;
  if (combine === "highest") return Math.max(...values);
  if (combine === "lowest") return Math.min(...values);
  const sum = values.reduce((all, one) => all + one, 0);
  return combine === "mean" ? sum / values.length : sum;
}

document.addEventListener("falconweb:frame", ({ detail: frame }) => {
  if (!view?.live) return;
  for (const panel of panels) {
    if (!panel.chart) continue;
    const values = valuesOf(panel, frame);
    if (!values) continue;
    if (values.some(Number.isFinite)) panel.chart.say("");
    panel.chart.append(frame.at, values);
  }
});

// --- Which range: zoomed by dragging, moved by the buttons, as the address says.

/** Show a range, and have the address say so. */
function go(query, { replace = false } = {}) {
  const address = `?${query}`;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  arrive();
}

function zoom(since, until) {
  const middle = (since + until) / 2;
  const half = Math.max(until - since, 10) / 2; // s: what is finer has no more readings
  const query = new URLSearchParams(location.search);
  query.delete("range");
  query.delete("q");
  query.set("since", `${iso(middle - half)}Z`);
  query.set("until", `${iso(middle + half)}Z`);
  go(plain(query));
}

const plain = (query) => query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
const RANGES = Object.fromEntries(
  [...document.querySelectorAll("[data-range]")].map((one) => [one.dataset.range, one]),
);
const SECONDS = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000, "1y": 31536000 };

/** Follow the address: after a click, a zoom, back or forward. */
function arrive() {
  const query = new URLSearchParams(location.search);
  const name = query.get("range") || (query.get("since") || query.get("until") ? "" : "1h");
  if (name)
    Object.assign(view, {
      live: true,
      seconds: SECONDS[name],
      until: Date.now() / 1000,
      since: Date.now() / 1000 - SECONDS[name],
    });
  else {
    const [since, until] = [absolute(query.get("since")), absolute(query.get("until"))];
    // What only the server understands, it shows.
    if (!(until > since)) return location.reload();
    Object.assign(view, { live: false, since, until, seconds: until - since });
  }
  for (const [one, link] of Object.entries(RANGES)) {
    if (one === name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  for (const one of ["since", "until"]) document.getElementById(one).value = iso(view[one]);
  pauseAll.hidden = !view.live;
  links(query);
  refill(chartsOf(place));
}

const absolute = (text) => (/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text ?? "") ? Date.parse(text) / 1000 : NaN);

/** Where the buttons lead from here, and what would be pinned. */
function links(query) {
  query.delete("q");
  document.querySelector("#pin [name=query]").value = plain(query);
  for (const link of document.querySelectorAll("[data-layout]")) {
    const there = new URLSearchParams(query);
    there.delete("charts");
    if (link.dataset.layout === "apart") there.set("charts", "apart");
    link.href = `?${plain(there)}`;
  }
}

function moved(name) {
  const { seconds } = view;
  const until = view.live ? Date.now() / 1000 : view.until;
  const since = until - seconds;
  const [from, to] = {
    earlier: [since - seconds / 2, until - seconds / 2],
    later: [since + seconds / 2, until + seconds / 2],
    in: [since + seconds / 4, until - seconds / 4],
    out: [since - seconds / 2, until + seconds / 2],
  }[name];
  zoom(from, to);
}

function clicked(event) {
  const link = event.target.closest("[data-range], [data-move]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  if (link.dataset.move) {
    moved(link.dataset.move);
    return;
  }
  const query = new URLSearchParams(location.search);
  for (const one of ["since", "until", "q"]) query.delete(one);
  query.set("range", link.dataset.range);
  go(plain(query));
}

if (place) {
  for (const panel of panels) {
    // It has no lines yet: those on screen are asked for first.
    make(panel, [], { left_out: [] });
    panel.chart.say("Loading");
    panel.section.setAttribute("aria-busy", "true");
  }
  document.addEventListener("click", clicked);
  addEventListener("popstate", arrive);
  pauseAll.addEventListener("click", () => {
    paused = !paused;
    pauseAll.setAttribute("aria-pressed", String(paused));
    pauseAll.textContent = paused ? "Resume" : "Pause";
    for (const chart of chartsOf(place)) if (chart.paused !== paused) chart.pause();
  });
}
