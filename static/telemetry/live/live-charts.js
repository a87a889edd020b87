// Charts of the last ten minutes. A section with data-charts and data-chart-objects="device/3 port/5" gets a chart for
// each group of its series; readings from before the page was opened are loaded from the server.

import { axisOf } from "../../site/axes.js";
import { Chart, chartsOf, MOST_LINES } from "../../site/chart.js";
import { lineStyles } from "../../site/chart-drawing.js";
import { _ } from "../../site/language.js";
import { limitsOf } from "../alerts/limits.js";
import { newestFrame } from "./live.js";
import { seriesLabel } from "./series-labels.js";

const SECONDS = 600;
const MOST_CHARTS = 8;
const GROUPS = [
  { title: _("Port traffic"), of: (s) => s.unit === "B/s" },
  { title: _("Utilisation"), of: (s) => s.quantity === "utilisation_percent" },
  { title: _("Temperature"), of: (s) => s.unit === "°C" },
  { title: _("Power"), of: (s) => s.unit === "W" },
  { title: _("Fan speed"), of: (s) => s.unit === "rpm" },
  { title: _("Fan speed"), of: (s) => s.quantity === "fan_percent" },
  { title: _("Link width"), of: (s) => s.unit === "lanes" },
  { title: _("Voltage"), of: (s) => s.unit === "V" },
];
const subscriptions = new Map(); // charts to { chassis, keys }

async function load(chart) {
  const { chassis, keys } = subscriptions.get(chart);
  let recent;
  try {
    const answer = await fetch(`/api/v1/chassis/${chassis}/readings/?keys=${encodeURIComponent(keys.join(","))}`);
    if (!answer.ok) return answer.status < 500;
    recent = await answer.json();
  } catch {
    return false; // no connection: the header shows it, and it is loaded again later
  }
  chart.set({ at: recent.at, series: keys.map((key) => ({ mean: recent.values[key] })) });
  return true;
}

function build(section, frame) {
  const objects = section.dataset.chartObjects.split(" ");
  const mine = frame.series.filter((one) => objects.includes(`${one.object}/${one.id}`));
  const keys = mine.map((one) => one.key).join(" ");
  if (section.dataset.keys === keys) return;
  section.dataset.keys = keys;
  for (const chart of chartsOf(section)) {
    subscriptions.delete(chart);
    chart.destroy();
  }
  const labels = JSON.parse(section.dataset.names || "{}");
  for (const group of GROUPS) {
    const series = mine.filter(group.of);
    if (series.length === 0 || chartsOf().length >= MOST_CHARTS) continue;
    const styles = lineStyles(series.map((one) => ({ thing: `${one.object}/${one.id}`, quantity: one.quantity })));
    const lines = series.map((one, place) => ({
      name: [labels[`${one.object}/${one.id}`], seriesLabel(one.label)].filter(Boolean).join(" "),
      unit: one.unit,
      ...styles[place],
    }));
    const chart = new Chart(section, lines, {
      title: group.title,
      ...axisOf(series[0].unit),
      seconds: SECONDS,
      span: _("of the last ten minutes"),
      load,
    });
    subscriptions.set(chart, { chassis: frame.chassis, keys: series.slice(0, MOST_LINES).map((one) => one.key) });
    showLimits(chart);
  }
}

function showLimits(chart) {
  const { chassis, keys } = subscriptions.get(chart);
  chart.setLimits(keys.flatMap((key) => limitsOf(chassis, key)));
}

document.addEventListener("falconweb:limits", () => [...subscriptions.keys()].forEach(showLimits));
document.addEventListener("falconweb:frame", ({ detail: frame }) => {
  const sections = document.querySelectorAll(`[data-chassis="${frame.chassis}"] [data-charts]`);
  for (const section of sections) build(section, frame);
  for (const [chart, { chassis, keys }] of subscriptions) {
    if (chassis === frame.chassis) chart.append(frame.at, keys.map(frame.value));
  }
});
for (const section of document.querySelectorAll("[data-chassis] [data-charts]")) {
  const frame = newestFrame(Number(section.closest("[data-chassis]").dataset.chassis));
  if (frame) build(section, frame);
}
