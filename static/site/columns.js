// The numbers behind a chart: times and, for each line, mean, low and high; NaN is no value. A live reading goes into
// the bucket of its time, so that an hour has as many points after ten minutes as it had at first.
const SPARE = 64; // points that the arrays have room for beyond those that they are made from

export class Columns {
  /** `step` is the length of a bucket in s; 0: each reading is a point. */
  constructor(lines, step = 0) {
    const none = () => Array.from({ length: lines }, () => new Float64Array(SPARE));
    Object.assign(this, { step, length: 0, times: new Float64Array(SPARE), means: none(), lows: null, highs: null });
    this.counts = new Float64Array(lines); // live readings in the newest bucket
  }

  /** From a response of the server: [{ mean, low, high }] in the order of the lines. */
  static from(at, step, series) {
    const columns = new Columns(0, step);
    const numbers = (values) => {
      const found = new Float64Array(at.length + SPARE);
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

  /** Its state as plain data, for a message to a worker. */
  state() {
    const { step, length, times, means, lows, highs, counts } = this;
    return { step, length, times, means, lows, highs, counts };
  }

  /** Add a reading, a value a line, and drop points before `since`; false where the reading is older than the newest.
   * */
  append(at, values, since) {
    if (this.step > 0) {
      const begin = Math.floor(at / this.step) * this.step;
      if (begin < this.newest) return false;
      if (begin === this.newest) this.merge(values, at - begin);
      else this.push(begin, values);
    } else {
      if (at <= this.newest) return false;
      this.push(at, values);
    }
    this.dropBefore(since);
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

  /** Merge values into the newest bucket, `seconds` after it began: at one reading a second it has had that many. */
  merge(values, seconds) {
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

  dropBefore(since) {
    let old = 0;
    while (old < this.length && this.times[old] < since) old += 1;
    if (old === 0) return;
    for (const columns of [[this.times], this.means, this.lows, this.highs]) {
      for (const column of columns ?? []) column.copyWithin(0, old, this.length);
    }
    this.length -= old;
  }

  /** Two points further apart than this (s) have a gap between them. */
  get gapSeconds() {
    return Math.max(2.5, 1.5 * this.step);
  }

  /** The index of the point nearest to a time; -1 without points. */
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

  /** The lowest and highest value of the lines for which `isShown` holds, and 0. */
  extent(isShown) {
    let least = 0;
    let most = 0;
    for (const columns of this.highs ? [this.lows, this.highs] : [this.means]) {
      columns.forEach((column, line) => {
        if (!isShown(line)) return;
        for (let i = 0; i < this.length; i++) {
          if (column[i] > most) most = column[i];
          else if (column[i] < least) least = column[i];
        }
      });
    }
    return [least, most];
  }
}
