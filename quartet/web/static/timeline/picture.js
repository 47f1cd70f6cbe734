// The drawing: rows are modules and their lanes, bars are spans. The positions of bars are kept for `under`.

import { drawBar } from "./bar.js";
import { drawPiece } from "./density.js";

const [ROW, GAP, AXIS, HEAD] = [18, 10, 26, 22];
const LEAST_HEIGHT = 120;
const MOST_LABEL = 150;
const TICK_SECONDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120];
const MOST_TICK_SECONDS = 300;
const LEAST_TICK_PIXELS = 70;

export class Picture {
  constructor(canvas, stretch, colours) {
    [this.canvas, this.stretch, this.colours] = [canvas, stretch, colours];
    this.enclosing = new Set(canvas.dataset.enclosing.split(" "));
    this.hits = [];
  }

  // `data`: a window of spans as sent by the server.
  paint(data) {
    this.data = data;
    const roles = byRole(data.rows);
    let height = AXIS;
    for (const rows of roles.values()) height += HEAD + rows.length * ROW + GAP;
    this.clear(Math.max(height, LEAST_HEIGHT));
    this.drawAxis(height);
    let top = AXIS;
    for (const [role, rows] of roles) {
      this.write(role, 0, top + HEAD / 2, { ink: this.inks.text, weight: "600" });
      top += HEAD;
      for (const row of rows) {
        this.drawRow(row, top);
        top += ROW;
      }
      top += GAP;
    }
  }

  clear(height) {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(height * scale);
    this.family = getComputedStyle(document.documentElement).fontFamily;
    this.inks = { text: this.ink("--text"), muted: this.ink("--muted"), line: this.ink("--line") };
    this.inks.raised = this.ink("--raised");
    this.pen = canvas.getContext("2d");
    this.pen.scale(scale, scale);
    this.pen.textBaseline = "middle";
    this.hits = [];
  }

  ink(name) {
    this.canvas.style.color = `var(${name})`;
    return getComputedStyle(this.canvas).color;
  }

  write(text, x, y, { ink = this.inks.muted, weight = "" } = {}) {
    this.pen.font = `${weight} 12px ${this.family}`;
    this.pen.fillStyle = ink;
    this.pen.fillText(text, x, y);
  }

  get left() {
    return Math.min(MOST_LABEL, this.canvas.clientWidth * 0.25);
  }

  get wide() {
    return this.canvas.clientWidth - this.left;
  }

  toX(time) {
    return this.left + ((time - this.stretch.start) / this.stretch.seconds) * this.wide;
  }

  toTime(x) {
    return this.stretch.start + ((x - this.left) / this.wide) * this.stretch.seconds;
  }

  drawAxis(height) {
    const { pen, stretch } = this;
    const fits = (one) => (one / stretch.seconds) * this.wide > LEAST_TICK_PIXELS;
    const step = TICK_SECONDS.find(fits) ?? MOST_TICK_SECONDS;
    const ticks = Math.ceil((stretch.start - stretch.first) / step); // ticks count from the run's beginning
    pen.strokeStyle = this.inks.line;
    for (let tick = ticks; stretch.first + tick * step < stretch.end; tick += 1) {
      const x = Math.round(this.toX(stretch.first + tick * step)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, height);
      pen.stroke();
      this.write(`${(tick * step).toFixed(step < 1 ? 2 : 0)} s`, x + 3, AXIS / 2);
    }
  }

  drawRow(row, top) {
    this.within(0, top, this.left - 8, () => this.write(row.lane || "itself", 12, top + ROW / 2));
    this.within(this.left, top, this.wide, () => {
      for (const span of row.spans) this.drawSpan(row, span, top);
      row.density.forEach((piece, nth) => this.drawDensity(row, piece, nth, top));
    });
  }

  within(x, top, width, draw) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(x, top, width, ROW);
    this.pen.clip();
    draw();
    this.pen.restore();
  }

  drawSpan(row, span, top) {
    const [offset, seconds, name] = span;
    const x = this.toX(this.data.start + offset);
    const width = Math.max((seconds / this.stretch.seconds) * this.wide, 0.75);
    const [left, right] = [this.left, this.canvas.clientWidth];
    if (x > right || x + width < left) return;
    const shade = this.enclosing.has(name);
    const [y, tall] = shade ? [top, ROW - 1] : [top + 2, ROW - 5];
    const look = { shade, colour: this.colours[name], inks: this.inks, left, right };
    drawBar(this.pen, { x, y, width, tall }, span, look);
    this.hits.push({ x, y: top, width, height: ROW, row, span });
  }

  drawDensity(row, piece, nth, top) {
    const seconds = this.data.seconds / row.density.length;
    const began = this.data.start + nth * seconds;
    const [x, end] = [this.toX(began), this.toX(began + seconds)];
    if (x > this.canvas.clientWidth || end < this.left) return;
    const box = { x, y: top + 1, width: end - x + 0.5, tall: ROW - 3 };
    drawPiece(this.pen, box, piece, this.colours, this.inks);
    this.hits.push({ x, y: top, width: end - x, height: ROW, row, piece, offset: nth * seconds, seconds });
  }

  // Return the topmost span at a position, with its row.
  under(x, y) {
    return this.hits.findLast(
      (hit) => x >= hit.x - 1 && x <= hit.x + hit.width + 1 && y >= hit.y && y < hit.y + hit.height,
    );
  }
}

function byRole(rows) {
  const roles = new Map();
  for (const row of rows) roles.set(row.role, [...(roles.get(row.role) ?? []), row]);
  return roles;
}
