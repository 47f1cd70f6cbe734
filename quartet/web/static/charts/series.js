// The points of one run, as the server sends them, and the lines that the charts draw through them.

const [X, TIME, COUNT, SUM, MAX, LOW] = [0, 1, 2, 3, 4, 5];

/** All curves of one run. `add` merges the points of a response, by time. */
export class Points {
  constructor() {
    this.curves = new Map(); // "chart label" -> the server's fields of the curve, with points: Map(time -> point)
    this.first = null; // Unix seconds of the run's beginning
    this.bounds = []; // limits of the recipe: {chart, label, value}
  }

  add(answer) {
    this.first = answer.first;
    this.bounds = answer.bounds;
    for (const sent of answer.curves) {
      const key = `${sent.chart} ${sent.label}`;
      const curve = this.curves.get(key) ?? { ...sent, points: new Map() };
      this.curves.set(key, curve);
      if (sent.slot_seconds) curve.slotSeconds = sent.slot_seconds;
      if (sent.replaces) curve.points = new Map();
      for (const point of sent.points) curve.points.set(point[TIME], point);
    }
  }

  ofChart(chart) {
    return [...this.curves.values()].filter((curve) => curve.chart === chart && curve.points.size);
  }

  /** Return the first and last Unix seconds of the points between two positions on the axis; null without points. */
  timesBetween(low, high, axis) {
    const times = [];
    for (const curve of this.curves.values()) {
      for (const point of curve.points.values()) {
        const x = this.place(point, axis);
        if (x >= low && x <= high) times.push(point[TIME], point[TIME] + (curve.slotSeconds ?? 0));
      }
    }
    return times.length ? [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))] : null;
  }

  /** Return a point's position on the axis. Time is relative to the run's beginning, so that runs can be overlaid. */
  place(point, axis) {
    return axis === "time" ? point[TIME] - this.first : point[X];
  }

  /** Return {xs, raw, ys, marks} of a curve, by x: values as recorded, smoothed values, and for measured points
   * [low, high, episodes]. `weight` is the decay of the moving average from one point to the next. */
  line(curve, axis, weight) {
    const line = { xs: [], raw: [], ys: [], marks: [] };
    let [top, bottom] = [0, 0];
    for (const [x, cell] of this.cells(curve, axis)) {
      top = weight * top + cell.top;
      bottom = weight * bottom + cell.bottom;
      line.xs.push(x);
      line.raw.push(curve.take === "max" ? cell.max : cell.top / cell.bottom);
      line.ys.push(curve.take === "max" || curve.measured ? line.raw.at(-1) : top / bottom);
      line.marks.push(cell.mark);
    }
    return line;
  }

  /** Return [x, sum of the points at x] by x, where the mean is top / bottom; for measured points, the newest at x. */
  cells(curve, axis) {
    const cells = new Map();
    const byTime = [...curve.points.values()].sort((a, b) => a[TIME] - b[TIME]);
    for (const point of curve.take === "rate" ? withIdleSlots(byTime, curve.slotSeconds) : byTime) {
      const x = this.place(point, axis);
      const before = curve.measured ? undefined : cells.get(x);
      const cell = before ?? { top: 0, bottom: 0, max: -Infinity, mark: curve.measured ? point.slice(LOW) : null };
      cell.top += curve.take === "rate" ? point[COUNT] : point[SUM];
      cell.bottom += curve.take === "rate" ? curve.slotSeconds : point[COUNT];
      cell.max = Math.max(cell.max, point[MAX]);
      cells.set(x, cell);
    }
    return [...cells].sort((a, b) => a[0] - b[0]);
  }
}

/** Add points with rate 0 for slots without records, which the server does not send, at the x of the point before. */
function withIdleSlots(points, seconds) {
  const filled = [];
  for (const point of points) {
    const previous = filled.at(-1);
    for (let time = (previous?.[TIME] ?? point[TIME]) + seconds; time < point[TIME]; time += seconds)
      filled.push([previous[X], time, 0, 0, 0]);
    filled.push(point);
  }
  return filled;
}
