// Values derived from readings. A frame is { chassis, at (s), series, value(key): NaN where it has none }.
const STALE_SECONDS = 3; // maximum age of a value of another chassis

/** The load of a link in one direction ('rx', 'tx') as a share of its capacity, a function of a frame; NaN where one
 * of the two is unknown. */
export function linkLoad(port, direction) {
  const traffic = `port/${port}/${direction}_bytes_per_second`;
  const speed = `port/${port}/link_speed_gbps`;
  return (frame) => (frame.value(traffic) * 8) / (frame.value(speed) * 1e9);
}

/** The load of a link in its busier direction, a function of a frame; NaN where the link is down. */
export function busierLoad(port) {
  const [received, sent] = [linkLoad(port, "rx"), linkLoad(port, "tx")];
  return (frame) => Math.max(received(frame), sent(frame));
}

/** A load as one of six steps: 0 idle, then fifths of the capacity. */
export const loadStep = (load) => (load > 0.005 ? Math.min(5, 1 + Math.floor(load * 5)) : 0);

/** Several values as one: their highest, lowest, mean or sum; NaN of none. */
export function combine(how, values) {
  if (values.length === 0) return NaN;
  if (how === "highest") return Math.max(...values);
  if (how === "lowest") return Math.min(...values);
  const sum = values.reduce((all, one) => all + one, 0);
  return how === "mean" ? sum / values.length : sum;
}

/** The values of lines, each of which combines parts { chassis_id, key }: those of other chassis than that of a frame
 * keep their newest value for STALE_SECONDS, and a counter ('.../rate') becomes a rate. */
export class LineValues {
  constructor() {
    this.newest = new Map(); // chassis and key -> { at, value }
    this.counters = new Map(); // chassis and key -> { at, total, rate }
  }

  /** The value of a line { combine, parts } once a frame has come. */
  of({ combine: how, parts }, frame) {
    return combine(how, parts.map((part) => this.partValue(part, frame)).filter(Number.isFinite));
  }

  partValue({ chassis_id: chassis, key }, frame) {
    const name = `${chassis} ${key}`;
    if (chassis !== frame.chassis) {
      const known = this.newest.get(name);
      return known && frame.at - known.at < STALE_SECONDS ? known.value : NaN;
    }
    const value = key.endsWith("/rate") ? this.rate(name, frame.at, frame.value(key.slice(0, -5))) : frame.value(key);
    this.newest.set(name, { at: frame.at, value });
    return value;
  }

  rate(name, at, total) {
    const before = this.counters.get(name);
    if (before?.at === at) return before.rate;
    const rate = before && total >= before.total ? (total - before.total) / (at - before.at) : NaN;
    this.counters.set(name, { at, total, rate });
    return rate;
  }
}
