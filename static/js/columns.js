// The numbers behind a chart: times and, for each line, mean, low and high; NaN is no value. What comes live goes into the
// bucket of its time, so that an hour has as many points after ten minutes as it had at first.
const ROOM = 64;

export class Columns {
  /** `step` is the length of a bucket in s; 0: each reading is a point. */
  constructor(lines, step = 0) {
    const none = () => Array.from({ length: lines }, () => new Float64Array(ROOM));
    Object.assign(this, { step, length: 0, times: new Float64Array(ROOM), means: none(), lows: null, highs: null });
    this.counts = new Float64Array(lines); // readings in the newest bucket, of those that came live
  }

  /** Those that the server has: [{ mean, low, high }] in the order of the lines. */
  static of(at, step, series) {
    const columns = new Columns(0, step);
    const numbers = (values) => {
      const found = new Float64Array(at.length + ROOM);
      for (let i = 0; i < at.length; i++) found[i] = values[i] ?? NaN;
      return found;
    };
    columns.length = at.length;
    columns.times = numbers(at);
    columns.means = series.map(({ mean }) => numbers(mean));
    if (series.length > 0 && series.every(({ low, high }) => low && high)) {
      columns.lows = series.map(({ low }) => numbers(low));
      columns.highs = series.map(({ high }) => numbers(high));
    }
    columns.counts = new Float64Array(series.length);
    return columns;
  }

  get at() {
    return this.times.subarray(0, this.length);
  }

  get mean() {
    return this.means.map((column) => column.subarray(0, this.length));
  }

  get low() {
    return this.lows?.map((column) => column.subarray(0, this.length)) ?? null;
  }

  get high() {
    return this.highs?.map((column) => column.subarray(0, this.length)) ?? null;
  }

  /** The time of the newest point, NaN without one. */
  get newest() {
    return this.length > 0 ? this.times[this.length - 1] : NaN;
  }

  /** All of it as plain data, to be handed to a worker. */
  copy() {
    const { step, length, times, means, lows, highs, counts } = this;
    return { step, length, times, means, lows, highs, counts };
  }

  /** Take a reading, a value a line, and let go what is older than `since`; false where it is no news. */
  append(at, values, since) {
    if (this.step > 0) {
      const begin = Math.floor(at / this.step) * this.step;
      if (begin < this.newest) return false;
      if (begin === this.newest) this.into(values, at - begin);
      else this.push(begin, values);
    } else {
      if (at <= this.newest) return false;
      this.push(at, values);
    }
    this.forget(since);
    return true;
  }

  push(at, values) {
    if (this.length === this.times.length) this.grow();
    this.times[this.length] = at;
    for (const columns of [this.means, this.lows, this.highs]) {
      columns?.forEach((column, line) => {
        column[this.length] = values[line];
      });
    }
    this.length += 1;
    values.forEach((value, line) => {
      this.counts[line] = Number.isNaN(value) ? 0 : 1;
    });
  }

  grow() {
    const larger = (column) => {
      const found = new Float64Array(2 * column.length);
      found.set(column);
      return found;
    };
    this.times = larger(this.times);
    for (const name of ["means", "lows", "highs"]) this[name] = this[name]?.map(larger) ?? null;
  }

  /** Take values into the newest bucket, `seconds` after it began: so many readings it has had, if not more. */
  into(values, seconds) {
    const end = this.length - 1;
    values.forEach((value, line) => {
      if (Number.isNaN(value)) return;
      const mean = this.means[line];
      const before = Number.isNaN(mean[end]) ? 0 : Math.max(this.counts[line], Math.round(seconds), 1);
      this.counts[line] = before + 1;
      mean[end] = before === 0 ? value : mean[end] + (value - mean[end]) / (before + 1);
      if (!this.lows) return;
      this.lows[line][end] = before === 0 ? value : Math.min(this.lows[line][end], value);
      this.highs[line][end] = before === 0 ? value : Math.max(this.highs[line][end], value);
    });
  }

  forget(since) {
    let old = 0;
    while (old < this.length && this.times[old] < since) old += 1;
    if (old === 0) return;
    for (const columns of [[this.times], this.means, this.lows, this.highs]) {
      for (const column of columns ?? []) column.copyWithin(0, old, this.length);
    }
    this.length -= old;
  }

  /** How long a pause between two points must be to be a gap. */
  get pause() {
    return Math.max(2.5, 1.5 * this.step);
  }

  /** The place of the point at a time, or nearest to it; -1 without points. */
  nearest(at) {
    let low = 0;
    let high = this.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= at) low = middle;
      else high = middle;
    }
    return Math.abs(this.times[high] - at) < Math.abs(this.times[low] - at) ? high : low;
  }

  /** The least and the most of the lines that `shown` says yes to, [0, 0] without values. */
  extent(shown) {
    let least = 0;
    let most = 0;
    for (const columns of this.highs ? [this.lows, this.highs] : [this.means]) {
      columns.forEach((column, line) => {
        if (!shown(line)) return;
        for (let i = 0; i < this.length; i++) {
          if (column[i] > most) most = column[i];
          else if (column[i] < least) least = column[i];
        }
      });
    }
    return [least, most];
  }
}
