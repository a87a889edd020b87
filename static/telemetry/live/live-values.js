// Shows readings on a page, in the topology and in tables of live values, and how fresh they are.

import { element, setAttribute, setText } from "../../site/dom.js";
import { formatPercent, formatValue } from "../../site/format.js";
import { _ } from "../../site/language.js";
import { SIGNS, worstSeverity } from "../../site/notices.js";
import { exceededLimit, limitsOf, limitWords } from "../alerts/limits.js";
import { formatAge, headerSentence, isOutdated, worstState } from "./connection.js";
import { connection, freshness, newestFrame, whyNotCompose } from "./live.js";
import { rangeOf, rowsOf } from "./live-list.js";
import { lookedUp, sectionsOf, shownChassis } from "./page-parts.js";
import { busierLoad, linkLoad, loadStep } from "./readings.js";

const METER_WIDTH = 116; // of the box less its margins, see picture.html
const LABEL_EVERY = 5; // s between changes of an accessible name: more would flood a screen reader
const labelledAt = new WeakMap(); // node -> s, the time of the frame whose load is in its accessible name
const title = document.title;
const icon = document.querySelector("link[rel=icon]");
const icons = icon
  ? { "": icon.getAttribute("href"), Warning: icon.dataset.warning, Critical: icon.dataset.bad }
  : null;

document.addEventListener("falconweb:frame", ({ detail }) => {
  if (!document.hidden) show(detail);
});
// Refreshed parts, and tabs that become visible, show their values immediately, not at the next frame.
document.addEventListener("falconweb:refreshed", showNewest);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) showNewest();
});

function showNewest() {
  for (const frame of shownChassis().map(newestFrame)) if (frame) show(frame);
  showFreshness();
}

function show(frame) {
  for (const view of viewsOf(frame.chassis)) view(frame);
}

/** What shows a chassis on the page: functions of a frame. */
const viewsOf = (chassis) => lookedUp(`views ${chassis}`, () => sectionsOf(chassis).flatMap(viewsIn));

function viewsIn(section) {
  const all = (selector, viewOf) => Array.from(section.querySelectorAll(selector), (node) => viewOf(node, section));
  return [
    ...all("[data-load]", loadView),
    ...all("[data-link]", linkView),
    ...all("[data-reading]", readingView),
    ...all("[data-fan]", fanView),
    ...all("[data-live]", valueView),
    (frame) => showLists(section, frame),
  ];
}

function loadView(link) {
  const [port, direction] = link.dataset.load.split("/");
  const load = linkLoad(port, direction);
  return (frame) => setAttribute(link, "data-step", String(loadStep(load(frame))));
}

function linkView(node, section) {
  const load = busierLoad(node.dataset.link);
  const place = node.querySelector("[data-load-words]");
  return (frame) => {
    const now = load(frame);
    setText(place, Number.isFinite(now) ? _("link {load}", { load: formatPercent(now) }) : "");
    // A screen reader may read each change of the focused element's name. The site's clock may be set back.
    if (Math.abs(frame.at - labelledAt.get(node)) < LABEL_EVERY || node === document.activeElement) return;
    if (section.classList.contains("stale")) return;
    labelledAt.set(node, frame.at);
    labelLoad(node, now);
  };
}

function readingView(text, section) {
  const device = `device/${text.dataset.reading}`;
  const [loadKey, heatKey] = [`${device}/utilisation_percent`, `${device}/temperature_celsius`];
  const meter = section.querySelector(`[data-meter="${text.dataset.reading}"]`);
  const begin = Number(meter?.getAttribute("x1"));
  return (frame) => {
    const load = frame.value(loadKey);
    const heat = frame.value(heatKey);
    const hot = exceededLimit(heat, limitsOf(frame.chassis, heatKey));
    const words = [
      Number.isFinite(load) ? _("use {load} %", { load: load.toFixed(0) }) : "",
      Number.isFinite(heat) ? `${heat.toFixed(0)} °C` : "",
    ];
    // The sign takes the place of the dot: there is no room for both.
    setText(text, words.filter(Boolean).join(hot ? ` ${SIGNS[hot.severity]} ` : " · "));
    setLevel(text, hot);
    const width = load > 0 ? Math.round((Math.min(load, 100) / 100) * METER_WIDTH) : 0;
    if (meter) setAttribute(meter, "x2", String(begin + width));
  };
}

const fanView = (text) => (frame) => {
  const series = frame.series.find((one) => one.quantity.startsWith("fan_") && one.label === text.dataset.fan);
  setText(text, series ? formatValue(frame.value(series.key), series.unit) : "");
};

const valueView = (cell) => (frame) => {
  const series = frame.series.find((one) => one.key === cell.dataset.live);
  if (series) setText(cell, formatValue(frame.value(series.key), series.unit));
};

/** Mark an element that shows a value beyond a limit (null: beyond none). */
function setLevel(node, limit) {
  setAttribute(node, "data-level", limit ? limit.severity.toLowerCase() : null);
}

/** Put the load of its link into the accessible name of a device or host port; NaN takes it out. */
function labelLoad(node, load) {
  node.dataset.label ??= node.getAttribute("aria-label");
  const label = node.dataset.label + (Number.isFinite(load) ? _(", {load} load", { load: formatPercent(load) }) : "");
  setAttribute(node, "aria-label", label);
  setText(node.querySelector("title"), label);
}

function showLists(section, frame) {
  for (const list of section.querySelectorAll("[data-live-objects]")) {
    const objects = new Set(list.dataset.liveObjects.split(" "));
    // Readings first, then counters of errors.
    const shown = frame.series
      .filter((one) => objects.has(`${one.object}/${one.id}`))
      .sort((one, other) => Number(one.unit === "") - Number(other.unit === ""));
    const rows = rowsOf(shown, "all" in list.dataset);
    const keys = rows.map(({ label, series }) => label + series.map((one) => one.key).join(" ")).join(" ");
    if (list.dataset.keys !== keys) {
      list.dataset.keys = keys;
      list.replaceChildren(...rows.map(({ label }) => element("div", {}, element("dt", {}, label), element("dd"))));
      offerAll(list, shown.length, rows.length < shown.length);
      const empty = section.querySelector("[data-live-empty]");
      if (empty) {
        empty.hidden = shown.length > 0;
        empty.textContent = _("Nothing is measured here.");
      }
    }
    for (const [place, row] of rows.entries()) {
      const cell = list.children[place].lastChild;
      if (row.series.length > 1) {
        const { words, limit } = rangeOf(row, frame.value, (key) => limitsOf(frame.chassis, key));
        setText(cell, (limit ? `${SIGNS[limit.severity]} ` : "") + words);
        setLevel(cell, limit);
        continue;
      }
      const [one] = row.series;
      const limits = limitsOf(frame.chassis, one.key);
      const value = frame.value(one.key);
      const limit = exceededLimit(value, limits);
      const sign = limit ? `${SIGNS[limit.severity]} ` : "";
      setText(cell, sign + formatValue(value, one.unit) + limitWords(value, limits));
      setLevel(cell, limit);
    }
  }
}

/** Offer all values of a list that shows ranges, by a button below it. */
function offerAll(list, count, isOffered) {
  const button = list.parentElement.querySelector("[data-live-all]");
  if (!isOffered || button) {
    if (button) button.hidden = !isOffered;
    return;
  }
  const made = element(
    "button",
    { type: "button", className: "quiet small" },
    _("Show all {count} values", { count }),
  );
  made.dataset.liveAll = "";
  made.addEventListener("click", () => {
    list.dataset.all = "";
    for (const frame of shownChassis().map(newestFrame)) if (frame) show(frame);
  });
  list.after(made);
}

// The loss of the site and that of a chassis have different sentences; the worst is in the title, where other tabs
// show it.
document.addEventListener("falconweb:freshness", showFreshness);
document.addEventListener("falconweb:alarm", showFreshness);

function showFreshness() {
  const all = shownChassis().map((chassis) => ({ chassis, ...freshness(chassis) }));
  const states = all.map(({ state }) => state);
  const worst = worstState(states, connection());
  const isBad = isOutdated(worst);
  showHeader(worst, states);
  const severity = isBad ? "Critical" : worstSeverity();
  const marked = severity ? `${SIGNS[severity]} ${title}` : title;
  if (document.title !== marked) document.title = marked; // setting the same value each second has a cost
  const address = icons?.[severity];
  if (address && icon.getAttribute("href") !== address) icon.setAttribute("href", address);
  for (const { chassis, state, age, period } of all) {
    const isOld = isOutdated(state);
    for (const { section, lastSeen, pace, buttons } of marksOf(chassis)) {
      if (isOld && !section.classList.contains("stale")) {
        for (const node of section.querySelectorAll("[data-link]")) labelLoad(node, NaN);
      }
      section.classList.toggle("stale", isOld);
      if (lastSeen) setText(lastSeen, isOld ? _("▲ Last seen {time}", { time: formatAge(age) }) : "");
      if (pace) setText(pace, paceWords(period));
      for (const button of buttons) {
        const reason = whyNotCompose(chassis);
        button.disabled = reason !== "";
        const place = button.form?.querySelector("[data-reason]");
        if (place) setText(place, reason);
      }
    }
  }
}

/** What tells in each section of a chassis how fresh it is. */
const marksOf = (chassis) =>
  lookedUp(`freshness ${chassis}`, () =>
    sectionsOf(chassis).map((section) => ({
      section,
      lastSeen: section.querySelector("[data-last-seen]"),
      pace: section.querySelector("[data-pace]"),
      buttons: [...section.querySelectorAll("[data-needs-live]")],
    })),
  );

/** How often a chassis is read, where that is not each second: see fabric.bmc.readings. */
function paceWords(period) {
  const seconds = Math.round(period / 1000);
  return seconds > 1 ? _("Read every {seconds} s.", { seconds }) : "";
}

function showHeader(worst, states) {
  const header = document.getElementById("freshness");
  const sentence = headerSentence(worst, states);
  if (!header || header.dataset.words === sentence) return;
  header.dataset.words = sentence;
  header.classList.toggle("bad", isOutdated(worst));
  if (worst === "signed-out") {
    const href = `/sign-in/?next=${encodeURIComponent(location.pathname + location.search)}`;
    header.replaceChildren(element("a", { href }, sentence));
  } else header.textContent = sentence;
}
