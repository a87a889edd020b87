// Charts of any range, live at their right end while it ends now: those of the telemetry page, and of the panels of a
// dashboard, each with a range of its own. The address of the charts page has the whole state, so that back, forward
// and a shared link show the same.

import { axisOf } from "../../site/axes.js";
import { Chart, chartsOf } from "../../site/chart.js";
import { lineStyles } from "../../site/chart-drawing.js";
import { reload } from "../../site/chart-schedule.js";
import { element } from "../../site/dom.js";
import { formatDuration, formatTime, localTime } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { limitsOf } from "../alerts/limits.js";
import { LineValues } from "../live/readings.js";
import { movedRange, queryText, rangeOf, zoomQuery } from "./time-range.js";

const POINTS = 600;
const place = document.getElementById("history");
const trouble = document.getElementById("trouble");
const resolution = document.getElementById("resolution");
const pauseAll = document.getElementById("pause-all");
const view = place && viewOf(place); // of the telemetry page
const lineValues = new LineValues();
let panels = [];
let paused = false;

function viewOf({ dataset }) {
  return {
    live: "live" in dataset,
    seconds: Number(dataset.seconds),
    since: Number(dataset.since),
    until: Number(dataset.until),
  };
}

/** Build the charts of the page, in place of those before: without lines at first, those on screen load first. */
export function buildPanels() {
  for (const panel of panels) {
    panel.request += 1; // what is on its way is not shown any more
    panel.chart.destroy();
  }
  panels = [...document.querySelectorAll(".history [data-panel]")].map((section) => ({
    section,
    data: section.dataset,
    view: view ?? viewOf(section.parentElement),
    chart: null,
    series: null,
    request: 0,
  }));
  for (const panel of panels) {
    buildChart(panel, [], { left_out: [] });
    panel.chart.explain(_("Loading"));
    panel.section.setAttribute("aria-busy", "true");
  }
}

function addressOf({ data: { subjects, metrics }, view }, path, points) {
  // A live view ends now by the server's clock.
  const { since, until } = view.live ? { since: `-${Math.round(view.seconds)}s`, until: "now" } : view;
  const query = new URLSearchParams({ subjects, metrics, since, until, points, stats: "band" });
  return `/api/v1/telemetry/${path}?${query}`;
}

/** Load the data of a panel; returns whether no retry is needed. */
async function load(panel) {
  panel.request += 1;
  const { request } = panel;
  const width = panel.section.clientWidth || POINTS;
  let answer, found;
  try {
    answer = await fetch(addressOf(panel, "", Math.max(60, Math.min(POINTS, width - 64))));
    found = await answer.json();
  } catch {
    return false; // no connection, or a proxy answers: the header shows it, and it is loaded again later
  }
  if (request !== panel.request) return true; // another range was chosen meanwhile
  if (trouble) {
    trouble.textContent = answer.ok ? "" : found.detail;
    trouble.hidden = answer.ok;
  } else if (!answer.ok) panel.chart.explain(found.detail);
  if (answer.ok) show(panel, found);
  return answer.status < 500;
}

function show(panel, found) {
  const { series, step } = found;
  const isSame = panel.chart && panel.series && series.map(keyOf).join() === panel.series.map(keyOf).join();
  panel.series = series;
  if (!isSame) buildChart(panel, series, found);
  panel.section.removeAttribute("aria-busy");
  const { chart, view } = panel;
  chart.options.seconds = view.seconds;
  chart.options.span = view.live
    ? _("of the last {duration}", { duration: formatDuration(view.seconds) })
    : _("from {since} to {until}", { since: formatTime(found.since), until: formatTime(found.until) });
  chart.set(found, view.live ? null : [found.since, found.until]);
  chart.button.hidden = !view.live;
  showLimits(panel);
  const isEmpty = series.every(({ mean }) => mean.every((value) => value === null));
  chart.explain(isEmpty ? whyEmpty(found) : "");
  if (!resolution) return;
  const duration = formatDuration(step);
  const point =
    step > 1
      ? _("Each point is {duration}: its mean, with its lowest and highest behind.", { duration })
      : _("Each point is {duration}.", { duration });
  const [reason] = found.gaps.map((gap) => gap.reason);
  resolution.textContent = reason ? [point, _("Grey bar: {reason}", { reason })].join(" ") : point;
}

/** Show the limits of lines that are one reading, or the highest of several. */
function showLimits({ chart, series }) {
  const lines = (series ?? []).filter(({ parts, combine }) => parts.length === 1 || combine === "highest");
  chart.setLimits(lines.flatMap(({ parts }) => parts.flatMap((part) => limitsOf(part.chassis_id, part.key))));
}

document.addEventListener("falconweb:limits", () => panels.forEach(showLimits));

function whyEmpty({ gaps, left_out: left }) {
  if (gaps.length > 0) return _("Nothing was read: {reason}", { reason: gaps[0].reason });
  return left[0]?.why ?? _("Nothing was measured in this range. Choose a later one.");
}

const keyOf = (one) => `${one.subject} ${one.metric}`;

function buildChart(panel, series, found) {
  const { data, section, view } = panel;
  const names = JSON.parse(data.names);
  const styles = lineStyles(series.map((one) => ({ thing: one.subject, quantity: one.metric })));
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
    ...axisOf(series[0]?.unit ?? data.unit),
    group: data.group || null,
    seconds: view.seconds,
    span: "",
    tableWords: _("As a table"),
    rows: 120,
    zoom: place ? zoom : (since, until) => openCharts(section.parentElement.dataset.charts, since, until),
    load: () => load(panel),
    csv: () => {
      location.assign(addressOf(panel, "table/", POINTS));
      return true;
    },
  });
  // Not loaded once more.
  Object.assign(panel.chart, { visible: before?.visible ?? false, loading: before?.loading ?? null, paused });
  const origin = originOf(series, names);
  if (origin) panel.chart.legend.after(element("p", { className: "faint made" }, origin));
}

/** The combination of the lines in words, '' for measured lines. */
function originOf(series, names) {
  const derived = series.filter((one) => one.made_of);
  if (derived.length === 0) return "";
  if (new Set(series.map((one) => one.made_of)).size === 1) {
    const made = derived[0].made_of;
    return series.length > 1 ? _("Each line is the {made}.", { made }) : _("It is the {made}.", { made });
  }
  const parts = derived.map((one) => `${names[one.subject] ?? one.name}: ${one.made_of}`);
  return parts.slice(0, 4).join("; ");
}

document.addEventListener("falconweb:frame", ({ detail: frame }) => {
  for (const { chart, series, view } of panels) {
    if (!view.live || !series?.some((one) => one.parts.some((part) => part.chassis_id === frame.chassis))) continue;
    const values = series.map((one) => lineValues.of(one, frame));
    if (values.some(Number.isFinite)) chart.explain("");
    chart.append(frame.at, values);
  }
});

/** Change the address, and show its range. */
function go(query) {
  history.pushState(null, "", `?${queryText(query)}`);
  showRange();
}

const zoom = (since, until) => go(zoomQuery(location.search, since, until));

/** Open the telemetry page at a part of the range of a panel of a dashboard. */
const openCharts = (address, since, until) => {
  const [path, query] = address.split("?");
  location.assign(`${path}?${queryText(zoomQuery(query, since, until))}`);
};

/** Show the range of the address: after a click, a zoom, back or forward. */
function showRange() {
  const query = new URLSearchParams(location.search);
  const range = rangeOf(query, Date.now() / 1000);
  if (!range) return location.reload(); // only the server understands it
  Object.assign(view, range);
  for (const link of document.querySelectorAll("[data-range]")) {
    if (link.dataset.range === range.name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  for (const one of ["since", "until"]) document.getElementById(one).value = localTime(view[one]);
  pauseAll.hidden = !view.live;
  updateLinks(query);
  reload(chartsOf(place));
}

/** Update the addresses of the page's links, and the view to be pinned. */
function updateLinks(query) {
  query.delete("q");
  document.querySelector("#pin [name=query]").value = queryText(query);
  for (const link of document.querySelectorAll("[data-layout]")) {
    const target = new URLSearchParams(query);
    target.delete("charts");
    if (link.dataset.layout === "apart") target.set("charts", "apart");
    link.href = `?${queryText(target)}`;
  }
}

function onClick(event) {
  const link = event.target.closest("[data-range], [data-move]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  if (link.dataset.move) {
    const until = view.live ? Date.now() / 1000 : view.until;
    zoom(...movedRange(link.dataset.move, until - view.seconds, until));
    return;
  }
  const query = new URLSearchParams(location.search);
  for (const one of ["since", "until", "q"]) query.delete(one);
  query.set("range", link.dataset.range);
  go(query);
}

buildPanels();
if (place) {
  document.addEventListener("click", onClick);
  addEventListener("popstate", showRange);
  pauseAll.addEventListener("click", () => {
    paused = !paused;
    pauseAll.setAttribute("aria-pressed", String(paused));
    pauseAll.textContent = paused ? _("Resume") : _("Pause");
    for (const chart of chartsOf(place)) if (chart.paused !== paused) chart.togglePause();
  });
}
