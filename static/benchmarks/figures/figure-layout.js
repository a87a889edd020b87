// Layout of a figure: positions of bars and of the names below them, and the axes. Positions are in widths of a bar.
import { escapeMarkup } from "../../site/format.js";

export const MARGINS = 90; // px beside the places of an axis
export const LETTER = 6.4; // px of a letter, about
export const GAP = 1.2; // between two places
const WIDEST = 120; // px of a bar
const MOST_LINES = 4; // of a name below an axis; where one needs more, all places are numbered

/** A, B, ... Z, AA, AB, ... */
export const letterOf = (nth) =>
  nth < 26 ? String.fromCharCode(65 + nth) : `${String.fromCharCode(64 + Math.floor(nth / 26))}${letterOf(nth % 26)}`;

/** A number with four digits; whole numbers stay exact. */
export const formatDigits = (value) =>
  Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));

/** Round numbers (1, 2, 5) for a logarithmic axis. */
export function decades(values) {
  const found = [];
  const most = Math.max(...values);
  let power = 10 ** Math.floor(Math.log10(Math.min(...values)));
  for (; power <= most; power *= 10) found.push(power, 2 * power, 5 * power);
  return found;
}

/** A long name in lines of about `most` characters. */
export function wrapWords(text, most) {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines;
}

/** The same as markup. */
export const wrapMarkup = (text, most) => wrapWords(text, most).map(escapeMarkup).join("<br>");

/** The positions of bars: side by side at each place, without room for bars that a place lacks. `keysAt(place)` are
 * the bars of a place; returns { at: Map of 'key\nplace' to a position, ticks: [{ place, at, bars }], end }. */
export function barPositions(places, keysAt) {
  const at = new Map();
  const ticks = [];
  let end = 0;
  for (const place of places) {
    const keys = keysAt(place);
    if (keys.length === 0) continue;
    const begin = end ? end + GAP : 0;
    for (const [nth, key] of keys.entries()) at.set(`${key}\n${place}`, begin + nth + 0.5);
    end = begin + keys.length;
    ticks.push({ place, at: (begin + end) / 2, bars: keys.length });
  }
  return { at, ticks, end };
}

/** The labels of ticks below a chart of a width (px): names in lines; where one is too long, `otherwise` ('numbers' or
 * 'aslant') for all. Returns { style, labels, barWidth }. */
export function tickLabels({ ticks, end }, places, width, otherwise) {
  const bar = Math.max(1, width - MARGINS) / (end + GAP);
  const letters = ({ bars }) => Math.floor(((bars + GAP) * bar) / LETTER - 0.5);
  const fits = (tick) => {
    const lines = wrapWords(tick.place, letters(tick));
    return lines.length <= MOST_LINES && lines.every((one) => one.length <= letters(tick));
  };
  const style = ticks.every(fits) ? "lines" : otherwise;
  const label = {
    lines: (tick) => wrapMarkup(tick.place, letters(tick)),
    numbers: (tick) => String(places.indexOf(tick.place) + 1),
    aslant: (tick) => escapeMarkup(tick.place),
  }[style];
  return { style, labels: ticks.map(label), barWidth: Math.min(0.92, WIDEST / bar) };
}
