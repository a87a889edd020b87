// What a chart shows, to be kept: rows, CSV and PNG.

import { exact } from "./axes.js";
import { DASHES, HEIGHT, sketch } from "./chart-drawing.js";
import { colours } from "./theme-colours.js";

/** Rows of what is shown: the time, then for each line its values. */
export function rowsOf({ columns: { at, mean, low, high }, scale }) {
  // What is whole (a total) stays exact, as in the tables of the server.
  const digits = (value) => (Number.isInteger(value) ? value : Number(value.toPrecision(7)));
  const cell = (value) => (Number.isNaN(value) ? "" : String(digits(value * scale)));
  return Array.from(at, (one, i) => [
    new Date(one * 1000).toISOString(),
    ...mean.flatMap((values, line) => (low ? [low[line][i], values[i], high[line][i]] : [values[i]]).map(cell)),
  ]);
}

/** What the columns of these rows are called, but for the time. */
export function headsOf({ columns, lines, options }) {
  const unit = options.unit ? ` (${options.unit})` : "";
  return lines.flatMap(({ name }) =>
    columns.lows ? ["low", "mean", "high"].map((stat) => `${name}${unit}, ${stat}`) : [`${name}${unit}`],
  );
}

/** Save what is shown as a table. */
export function saveCsv(chart) {
  // A name from a BMC that begins like a formula must not become one in a spreadsheet.
  const safe = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const lines = rowsOf(chart).map((cells) => cells.join(","));
  const text = [["time", ...headsOf(chart)].map(safe).join(","), ...lines].join("\r\n");
  save(new Blob([`${text}\r\n`], { type: "text/csv" }), `${nameOf(chart)}.csv`);
}

const nameOf = ({ options }) => options.title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

/** What is shown as a picture, with its caption and the names of its lines. */
export function savePicture(chart) {
  const ratio = 2;
  const line = 20;
  const shown = chart.lines.map((_, place) => place).filter(chart.shown);
  const canvas = document.createElement("canvas");
  canvas.width = chart.width * ratio;
  canvas.height = (HEIGHT + 30 + line * (shown.length + 1)) * ratio;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const ink = colours();
  context.fillStyle = ink.ground;
  context.fillRect(0, 0, chart.width, canvas.height / ratio);
  context.fillStyle = ink.text;
  context.font = `600 14px ${ink.family}`;
  context.textBaseline = "top";
  context.fillText(chart.figure.querySelector("figcaption").textContent, 12, 8);
  context.translate(0, 30);
  sketch(context, { ...chart.view(), columns: chart.columns });
  context.textAlign = "left";
  context.textBaseline = "middle";
  shown.forEach((place, nth) => {
    const y = HEIGHT + line * (nth + 0.5);
    context.strokeStyle = ink.palette[chart.lines[place].colour % ink.palette.length];
    context.lineWidth = 2;
    context.setLineDash(DASHES[chart.lines[place].dash]);
    context.beginPath();
    context.moveTo(12, y);
    context.lineTo(36, y);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = ink.text;
    context.fillText(chart.lines[place].name, 44, y);
  });
  context.fillStyle = ink.text;
  context.fillText(chart.window.map(exact).join(" to "), 12, HEIGHT + line * (shown.length + 0.5));
  canvas.toBlob((blob) => save(blob, `${nameOf(chart)}.png`), "image/png");
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
