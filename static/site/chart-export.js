// Exports the shown data of a chart as a table, a CSV file and a PNG file.

import { DASHES, drawChart, HEIGHT } from "./chart-drawing.js";
import { csvCell, saveBlob, saveCsv } from "./csv.js";
import { formatTime, pageZone } from "./format.js";
import { _ } from "./language.js";
import { colours } from "./theme-colours.js";

/** The rows of the table: the time as text (in UTC unless given), then the values of each line. */
export function tableRows({ columns: { at, mean, low, high }, scale }, timeText = utcText) {
  // Whole numbers (totals) stay exact, as in the tables of the server.
  const digits = (value) => (Number.isInteger(value) ? value : Number(value.toPrecision(7)));
  const cell = (value) => (Number.isNaN(value) ? "" : String(digits(value * scale)));
  return Array.from(at, (one, i) => [
    timeText(one),
    ...mean.flatMap((values, line) => (low ? [low[line][i], values[i], high[line][i]] : [values[i]]).map(cell)),
  ]);
}

const utcText = (at) => new Date(at * 1000).toISOString();

const STATISTICS = ["low", "mean", "high"];

/** The names of the columns, without that of the time; files have those of statistics in English. */
export function columnNames({ columns, lines, options }, statistics = STATISTICS) {
  const unit = options.unit ? ` (${options.unit})` : "";
  return lines.flatMap(({ name }) =>
    columns.lows ? statistics.map((stat) => `${name}${unit}, ${stat}`) : [`${name}${unit}`],
  );
}

/** Save the shown data as a CSV file. */
export function saveTable(chart) {
  saveCsv([["time", ...columnNames(chart)].map(csvCell), ...tableRows(chart)], `${fileName(chart)}.csv`);
}

const fileName = ({ options }) => options.title.toLowerCase().replaceAll(/[^\p{L}\p{N}]+/gu, "-");

/** Save the shown chart as a picture, with its caption and the names of its lines. */
export function savePicture(chart) {
  const ratio = 2;
  const line = 20;
  const shown = chart.lines.map((_line, place) => place).filter(chart.isShown);
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
  drawChart(context, { ...chart.view(), columns: chart.columns });
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
  const [since, until] = chart.window.map(formatTime);
  context.fillText(
    _("{since} to {until} ({zone})", { since, until, zone: pageZone() }),
    12,
    HEIGHT + line * (shown.length + 0.5),
  );
  canvas.toBlob((blob) => saveBlob(blob, `${fileName(chart)}.png`), "image/png");
}
