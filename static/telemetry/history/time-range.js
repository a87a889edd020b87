// Ranges of time of the telemetry page, as its address has them; s since 1970.
import { isoTime } from "../../site/format.js";

const SECONDS = { "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000, "1y": 31536000 };
const SHORTEST = 10; // s: readings are a second apart

/** The range of an address at a moment: { name, live, since, until, seconds }; null where it needs the server. */
export function rangeOf(query, now) {
  const [first, last] = [query.get("since"), query.get("until")];
  const name = query.get("range") || (first || last ? "" : "1h");
  const seconds = SECONDS[name];
  if (seconds) return { name, live: true, since: now - seconds, until: now, seconds };
  const [since, until] = [parseMoment(first), parseMoment(last)];
  return until > since ? { name, live: false, since, until, seconds: until - since } : null;
}

/** A moment as zoomQuery writes it; NaN for any other text. */
const parseMoment = (text) => (/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text ?? "") ? Date.parse(text) / 1000 : NaN);

/** The address of a range around the same middle, at least as long as readings can show. */
export function zoomQuery(search, since, until) {
  const middle = (since + until) / 2;
  const half = Math.max(until - since, SHORTEST) / 2;
  const query = new URLSearchParams(search);
  for (const name of ["range", "q"]) query.delete(name);
  query.set("since", `${isoTime(middle - half)}Z`);
  query.set("until", `${isoTime(middle + half)}Z`);
  return query;
}

/** The ends of a moved range: by half of it earlier or later, or zoomed 'in' or 'out' by half. */
export function movedRange(direction, since, until) {
  const seconds = until - since;
  return {
    earlier: [since - seconds / 2, until - seconds / 2],
    later: [since + seconds / 2, until + seconds / 2],
    in: [since + seconds / 4, until - seconds / 4],
    out: [since - seconds / 2, until + seconds / 2],
  }[direction];
}

/** A query as text, with '/' and ':' as they are. */
export const queryText = (query) => query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
