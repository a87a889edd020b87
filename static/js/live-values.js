// Puts readings into the page: topology, tables of live values, and how fresh they are.
import { loudest } from "./alert-badge.js";
import { connection, freshness, newest, wanted } from "./live.js";

const LINK_STATES = ["no link", "down", "starting", "training", "up"];
const METER_WIDTH = 116; // of the box less its margins, see picture.html
const SAY_EVERY = 5000; // ms between changes of what is read aloud: more would flood a screen reader
const SENTENCES = {
  "signed-out": "▲ You are signed out: sign in again",
  offline: "▲ No connection to FalconWeb; trying again",
  stale: "▲ Chassis not sending",
  joining: "○ Connecting",
  late: "◐ Late",
  live: "● Live",
  connected: "● Live", // pages without a chassis: the site answers
};
const WORST_FIRST = Object.keys(SENTENCES);
const title = document.title;
const icon = document.querySelector("link[rel=icon]");
const icons = icon ? { good: icon.href, bad: icon.dataset.bad } : null;

// As many decimals as a reading is good for, always the same: figures below each other do not jump.
const DECIMALS = { "°C": 1, "%": 0, W: 0, rpm: 0, V: 2, A: 1, kWh: 2, lanes: 0, "Gb/s": 0, "": 0 };

/** A value with its unit, as people read it. */
export function format(value, unit) {
  if (!Number.isFinite(value)) return "no value";
  if (unit === "state") return LINK_STATES[value] ?? String(value);
  if (unit === "B/s") return `${(value / 1e9).toFixed(2)} GB/s`;
  return `${value.toFixed(DECIMALS[unit] ?? 1)} ${unit}`.trim();
}

/** Load as a share of the capacity, NaN where one of both is not known. */
const share = (bytesPerSecond, gigabitsPerSecond) => (bytesPerSecond * 8) / (gigabitsPerSecond * 1e9);

/** Load as one of six steps: 0 idle, then fifths of the capacity. */
function step(load) {
  if (!(load > 0.005)) return 0;
  return Math.min(5, 1 + Math.floor(load * 5));
}

document.addEventListener("falconweb:frame", ({ detail }) => show(detail));
// Parts that came fresh from the server show their values at once, not at the next frame.
document.addEventListener("falconweb:refreshed", () => {
  for (const frame of wanted().map(newest)) if (frame) show(frame);
  tellFreshness();
});

function show(frame) {
  for (const section of document.querySelectorAll(`[data-chassis="${frame.chassis}"]`)) {
    topology(section, frame);
    tables(section, frame);
  }
}

function topology(section, frame) {
  for (const link of section.querySelectorAll("[data-load]")) {
    const [port, direction] = link.dataset.load.split("/");
    const now = step(loadOf(frame, port, direction));
    if (link.dataset.step === String(now)) continue;
    link.classList.remove(`load-${link.dataset.step}`);
    link.classList.add(`load-${now}`);
    link.dataset.step = now;
  }
  for (const node of section.querySelectorAll("[data-link]")) {
    const load = busier(frame, node.dataset.link);
    const words = Number.isFinite(load) ? `link ${percent(load)}` : "";
    const text = node.querySelector("[data-load-words]");
    if (text.textContent !== words) text.textContent = words;
  }
  if (!section.classList.contains("stale")) sayLoads(section, frame);
  for (const text of section.querySelectorAll("[data-reading]")) {
    const of = (quantity) => frame.value(`device/${text.dataset.reading}/${quantity}`);
    const load = of("utilisation_percent");
    const heat = of("temperature_celsius");
    const words = [
      Number.isFinite(load) ? `use ${load.toFixed(0)} %` : "",
      Number.isFinite(heat) ? `${heat.toFixed(0)} °C` : "",
    ];
    text.textContent = words.filter(Boolean).join(" · ");
    const meter = section.querySelector(`[data-meter="${text.dataset.reading}"]`);
    meter?.setAttribute("width", load > 0 ? Math.round((Math.min(load, 100) / 100) * METER_WIDTH) : 0);
  }
  for (const cell of section.querySelectorAll("[data-live]")) {
    const series = frame.series.find((one) => one.key === cell.dataset.live);
    if (series) cell.textContent = format(frame.value(series.key), series.unit);
  }
}

const percent = (load) => `${Math.round(Math.min(1, load) * 100)} %`;
const loadOf = (frame, port, direction) =>
  share(frame.value(`port/${port}/${direction}_bytes_per_second`), frame.value(`port/${port}/link_speed_gbps`));

/** The load of a link the way that is busier: the number that stands for it; NaN where the link is down. */
function busier(frame, port) {
  return Math.max(loadOf(frame, port, "rx"), loadOf(frame, port, "tx"));
}

/** Put the load of each link into what is read aloud of its device and host port; null: what is known is old. */
function sayLoads(section, frame) {
  const now = Date.now();
  for (const node of section.querySelectorAll("[data-link]")) {
    // A changed name of what has the focus may be read at once, again and again.
    if (frame && (now - Number(node.dataset.saidAt ?? 0) < SAY_EVERY || node === document.activeElement)) continue;
    node.dataset.saidAt = now;
    node.dataset.label ??= node.getAttribute("aria-label");
    const load = frame ? busier(frame, node.dataset.link) : NaN;
    const label = node.dataset.label + (Number.isFinite(load) ? `, ${percent(load)} load` : "");
    if (node.getAttribute("aria-label") === label) continue;
    node.setAttribute("aria-label", label);
    node.querySelector("title").textContent = label;
  }
}

function tables(section, frame) {
  for (const list of section.querySelectorAll("[data-live-objects]")) {
    const objects = new Set(list.dataset.liveObjects.split(" "));
    // Readings first, then what only counts errors.
    const shown = frame.series
      .filter((one) => objects.has(`${one.object}/${one.id}`))
      .sort((one, other) => Number(one.unit === "") - Number(other.unit === ""));
    const keys = shown.map((one) => one.key).join(" ");
    if (list.dataset.keys !== keys) {
      list.dataset.keys = keys;
      list.replaceChildren(...shown.map(entry));
      const empty = section.querySelector("[data-live-empty]");
      if (empty) {
        empty.hidden = shown.length > 0;
        empty.textContent = "Nothing is measured here.";
      }
    }
    shown.forEach((one, place) => {
      list.children[place].lastChild.textContent = format(frame.value(one.key), one.unit);
    });
  }
}

function entry(series) {
  const made = document.createElement("div");
  const name = document.createElement("dt");
  name.textContent = series.label;
  made.append(name, document.createElement("dd"));
  return made;
}

/** Whether attaching may be offered for a chassis, '' or the reason why not. */
export function whyNotCompose(chassis) {
  const { state, age } = freshness(chassis);
  if (state === "signed-out") return "You are signed out. Sign in again.";
  if (state === "offline")
    return "There is no connection to FalconWeb, so what you see may be old. It is being tried again.";
  if (state === "stale") {
    return `This chassis was last heard of ${ago(age)}, so what you see may be old. Attaching waits until it answers.`;
  }
  return "";
}

const ago = (age) => (age === null ? "before this page was opened" : `${Math.round(age / 1000)} s ago`);

// Two different losses are two different sentences, and the worst is in the title, where other tabs show it.
document.addEventListener("falconweb:freshness", tellFreshness);
document.addEventListener("falconweb:alarm", tellFreshness);

function tellFreshness() {
  const here = wanted();
  const all = here.map((chassis) => [chassis, freshness(chassis)]);
  const worst = here.length ? WORST_FIRST.find((state) => all.some(([, one]) => one.state === state)) : connection();
  const bad = ["signed-out", "offline", "stale"].includes(worst);
  const said = document.getElementById("freshness");
  const ill = all.filter(([, one]) => one.state === "stale").length;
  const words =
    worst === "stale" && here.length > 1 ? `▲ ${ill} of ${here.length} chassis not sending` : SENTENCES[worst];
  if (said && said.dataset.words !== words) {
    said.dataset.words = words;
    said.textContent = words;
    said.classList.toggle("bad", bad);
    if (worst === "signed-out") {
      const link = document.createElement("a");
      link.href = `/sign-in/?next=${encodeURIComponent(location.pathname + location.search)}`;
      link.textContent = said.textContent;
      said.replaceChildren(link);
    }
  }
  const alarm = bad ? "Critical" : loudest();
  const named = alarm ? `${alarm === "Critical" ? "▲" : "▼"} ${title}` : title;
  if (document.title !== named) document.title = named; // each second: to set the same would cost as much as another
  const shown = icons && (alarm === "Critical" ? icons.bad : icons.good);
  if (shown && icon.href !== shown) icon.href = shown;
  for (const [chassis, { state, age }] of all) {
    const old = ["signed-out", "offline", "stale"].includes(state);
    for (const section of document.querySelectorAll(`[data-chassis="${chassis}"]`)) {
      if (old && !section.classList.contains("stale")) sayLoads(section, null);
      section.classList.toggle("stale", old);
      const seen = section.querySelector("[data-last-seen]");
      if (seen) seen.textContent = old ? `▲ Last seen ${ago(age)}` : "";
      for (const button of section.querySelectorAll("[data-needs-live]")) {
        const reason = whyNotCompose(chassis);
        button.disabled = reason !== "";
        const words = button.form?.querySelector("[data-reason]");
        if (words) words.textContent = reason;
      }
    }
  }
}
