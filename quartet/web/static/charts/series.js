// The points of one run, as the server sends them, and the lines that are drawn from them.

const [X, TIME, COUNT, SUM, MAX, LOW] = [0, 1, 2, 3, 4, 5];

/** All curves of one run: merges what comes, by time. */
export class Points {
  constructor() {
    this.curves = new Map(); // "chart label" -> what the server says of the curve, points: Map(time -> point)
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

  /** First and last Unix seconds of what lies between two places on the axis; null when nothing does. */
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

  /** Time is counted from the beginning of the run, so that runs can be laid over each other. */
  place(point, axis) {
    return axis === "time" ? point[TIME] - this.first : point[X];
  }

  /** {xs, raw, ys, marks} of a curve, by x: as recorded, smoothed, and of a measured point [low, high, episodes].
   * `weight` is what remains of a point at the next one. */
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

  /** x -> what its points add up to: a mean is top / bottom. Of measured points at one place the newest counts. */
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

/** A slot in which nothing happened has no point, and its rate is 0. It lies where the one before it does. */
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
