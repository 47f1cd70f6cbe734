// One chart: lines of one or more runs, a legend whose entries hide and show lines, zoom by mouse and keyboard.

import { colour, nthDash, nthName } from "./colours.js";
import { save } from "./csv.js";
import { measured, number, place } from "./format.js";
import { look } from "./look.js";
import { drawBounds, drawIntervals } from "./marks.js";

const KEY_STEP = 0.02;
const NEAR = 0.01; // share of the width: a measured point this close to the cursor is shown
const ROUNDING = 1e-4; // relative difference below which values count as equal: points are sent with six digits
const STROKE = '<svg viewBox="0 0 22 8" aria-hidden="true"><path d="M0 4H22" fill="none" stroke-width="3"/></svg>';
const ENTRY = `${STROKE}<span></span><output></output>`;

export class Chart {
  /** The chart calls `zoom(low, high)` and `whole()` of the page, which zooms all charts together. */
  constructor(card, { zoom, whole }) {
    this.card = card;
    this.holder = card.querySelector(".plot");
    this.legend = card.querySelector(".legend");
    this.share = "share" in card.dataset;
    this.title = card.dataset.title;
    this.tell = { zoom, whole };
    this.hidden = new Set();
    this.lines = [];
    this.bounds = [];
    this.log = false;
    card.querySelector("[data-log]")?.addEventListener("click", (event) => {
      this.log = !this.log;
      event.currentTarget.setAttribute("aria-pressed", this.log);
      this.draw();
    });
    card
      .querySelector("[data-csv]")
      .addEventListener("click", () => this.lines.length && save(this.title, this.axis, this.visible(), this.range));
    this.holder.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.fit()).observe(this.holder);
  }

  /** lines: [{label, run, nthRun, nthCurve, measured, right, xs, raw, ys, marks}], bounds: [{label, value}] */
  show(lines, { axis, range, runs, bounds }) {
    Object.assign(this, { lines, axis, range, runs, bounds });
    if ("optional" in this.card.dataset) this.card.hidden = !lines.length;
    this.draw();
  }

  visible() {
    return this.lines.filter((line) => !this.hidden.has(key(line)));
  }

  draw() {
    if (!this.lines.length) return;
    const shape = JSON.stringify([
      this.log,
      this.axis,
      this.theme(),
      this.bounds,
      this.lines.map((line) => [line.run, line.label]),
    ]);
    if (shape !== this.shape) this.build(shape);
    [, ...this.smoothed] = uPlot.join(this.lines.map((line) => [line.xs, line.ys])); // places as in the table
    this.plot.setData(this.table(), false);
    this.lines.forEach((line, index) =>
      this.eachSeries(index, (series) => this.plot.setSeries(series, { show: !this.hidden.has(key(line)) })),
    );
    this.rescale();
    this.tellValues(this.plot.cursor.idx ?? null);
  }

  theme() {
    return [colour("--text"), getComputedStyle(document.documentElement).fontSize];
  }

  build(shape) {
    this.shape = shape;
    this.whereabouts = document.createElement("li");
    this.whereabouts.className = "muted small whereabouts";
    const entries = this.lines.map((line) => this.entry(line));
    this.legend.replaceChildren(...entries, ...this.bounds.map(boundEntry), this.whereabouts);
    this.plot?.destroy();
    this.plot = new uPlot({ ...look(this), ...this.size(), hooks: this.hooks() }, this.table(), this.holder);
  }

  /** Return uPlot's data. Every line is in it twice: as recorded (drawn faintly), and smoothed. A logarithmic axis has
   * no place for values that are not positive; the axis on the right is always linear. */
  table() {
    const drawn = (line, ys) => (this.log && !line.right ? ys.map((y) => (y > 0 ? y : null)) : ys);
    const noisy = this.runs === 1;
    return uPlot.join(
      this.lines.map((line) => [
        line.xs,
        noisy && !line.measured ? drawn(line, line.raw) : line.xs.map(() => null),
        drawn(line, line.ys),
      ]),
    );
  }

  eachSeries(index, act) {
    act(1 + 2 * index);
    act(2 + 2 * index);
  }

  hooks() {
    return {
      draw: [(plot) => drawBounds(this, plot), (plot) => drawIntervals(this, plot)],
      setSelect: [(plot) => this.onSelect(plot)],
      setCursor: [(plot) => this.plot === plot && this.tellValues(plot.cursor.idx)],
    };
  }

  name(line) {
    return nthName(this.runs > 1 ? line.nthRun : line.nthCurve);
  }

  dash(line) {
    return nthDash(this.runs > 1 ? line.nthCurve : 0);
  }

  /** Return the range of the vertical axis: 0 to 1 for shares; otherwise from 0, unless the values lie far above, and
   * high enough to show the recipe's limits. */
  heights(low, high) {
    if (low === null) return this.log ? [0.1, 1] : [0, 1]; // on a logarithmic axis, ticks from 0 never end
    const top = Math.max(high, ...this.bounds.map((bound) => bound.value));
    if (this.log) return [low / 1.2, top * 1.2];
    if (this.share) return [0, 1];
    const spread = top - low > ROUNDING * Math.abs(top) ? top - low : Math.abs(top) || 1;
    const room = spread * 0.08;
    return [low >= 0 && low < 0.6 * top ? 0 : low - room, top + room];
  }

  rescale() {
    const [low, high] = this.range;
    this.plot.setScale("x", { min: low, max: high === low ? low + 1 : high });
  }

  size() {
    return { width: Math.max(this.holder.clientWidth, 120), height: Math.max(this.holder.clientHeight, 80) };
  }

  fit() {
    if (!this.plot) return;
    this.draw();
    this.plot.setSize(this.size());
  }

  entry(line) {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", !this.hidden.has(key(line)));
    const label = this.runs > 1 ? `${line.run} · ${line.label}` : line.label;
    const dash = this.dash(line).join(" ");
    button.innerHTML = ENTRY;
    button.querySelector("path").style.stroke = `var(${this.name(line)})`;
    button.querySelector("path").style.strokeDasharray = dash;
    button.querySelector("span").textContent = label;
    button.addEventListener("click", () => {
      if (!this.hidden.delete(key(line))) this.hidden.add(key(line));
      button.setAttribute("aria-pressed", !this.hidden.has(key(line)));
      this.draw();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  /** Show in the legend the values at `index`, or the newest values if it is null. */
  tellValues(index) {
    const outputs = this.legend.querySelectorAll("output");
    const [xs] = this.plot.data;
    const at = index ?? xs.length - 1;
    const told = this.lines.map((line, nth) =>
      line.measured
        ? measured(line, index === null ? null : xs[at], NEAR * (this.range[1] - this.range[0]))
        : number(nearest(this.smoothed[nth], at), this.share || line.right),
    );
    told.forEach((text, nth) => (outputs[nth].textContent = text));
    this.whereabouts.textContent = index === null ? "" : `at ${place(xs[at], this.axis)}`;
    if (index === null) {
      const newest = this.lines.map((line, nth) => `${line.label} ${told[nth]}`).join(", ");
      this.holder.setAttribute("aria-label", `${this.title}: ${newest} at ${place(xs.at(-1), this.axis)}`);
    }
  }

  onSelect(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const [low, high] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.tell.zoom(low, high);
  }

  onKey(event) {
    if (!this.plot) return;
    const { min, max } = this.plot.scales.x;
    const middle = this.plot.cursor.idx == null ? (min + max) / 2 : this.plot.data[0][this.plot.cursor.idx];
    const acts = {
      ArrowLeft: () => this.moveCursor(-KEY_STEP),
      ArrowRight: () => this.moveCursor(KEY_STEP),
      "+": () => this.tell.zoom(middle - (max - min) / 4, middle + (max - min) / 4),
      "-": () => this.tell.zoom(min - (max - min) / 2, max + (max - min) / 2),
      Escape: () => this.tell.whole(),
    };
    if (!(event.key in acts) || event.ctrlKey || event.metaKey || event.altKey) return;
    acts[event.key]();
    event.preventDefault();
  }

  moveCursor(share) {
    const { width, height } = this.plot.bbox;
    const [wide, high] = [width / devicePixelRatio, height / devicePixelRatio];
    const left = this.plot.cursor.left < 0 ? wide / 2 : this.plot.cursor.left + share * wide;
    this.plot.setCursor({ left: Math.min(Math.max(left, 0), wide - 1), top: high / 2 });
  }
}

const key = (line) => `${line.run} ${line.label}`;

function boundEntry({ label, value }) {
  const item = document.createElement("li");
  item.className = "bound small";
  item.innerHTML = STROKE;
  item.append(`${label} ${number(value)}`);
  return item;
}

/** Return the value at an index of a joined table, or the last value before it. */
function nearest(ys, index) {
  for (let at = index; at >= 0; at--) if (ys[at] !== null && ys[at] !== undefined) return ys[at];
  return null;
}
