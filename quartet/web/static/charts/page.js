// The Run page: requests curves from the server, and keeps all charts on the same part of the run.

import { Chart } from "./chart.js";
import { leaving } from "./pins.js";
import { Points } from "./series.js";

const PERIOD_MS = 2000;
const RESTING_PERIOD_MS = 15000;

class Page {
  constructor() {
    const query = new URLSearchParams(location.search);
    this.axis = query.get("axis") ?? "train_step";
    this.smoothing = Number(query.get("smoothing") ?? 0.9);
    this.pins = query.getAll("pin").map((pin) => ["pin", pin]);
    this.range = null;
    this.detail = null; // finer points of the part that is zoomed in
    this.restarts = 0;
    this.runs = [...document.querySelectorAll("[data-run]")].map(({ dataset }) => ({
      name: dataset.run,
      url: dataset.url,
    }));
    const told = { zoom: (low, high) => this.zoom(low, high), whole: () => this.whole() };
    this.charts = [...document.querySelectorAll("[data-chart]")].map((card) => new Chart(card, told));
    this.listen();
    this.restart().then(() => this.zoomAsLinked(query.get("zoom")));
  }

  listen() {
    this.choice("axis", (value) => {
      this.axis = value;
      this.range = this.detail = null;
      remember("zoom", null);
      this.restart();
    });
    this.choice("smoothing", (value) => {
      this.smoothing = Number(value);
      this.draw();
    });
    document.querySelector("[data-whole]").addEventListener("click", () => this.whole());
    document.addEventListener("themechange", () => this.draw());
  }

  /** Connect a group of buttons of which one is pressed; the choice is stored in the address. */
  choice(name, act) {
    const buttons = [...document.querySelectorAll(`[data-${name}]`)];
    const press = (value) =>
      buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset[name] === value));
    press(String(this[name]));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        const value = button.dataset[name];
        press(value);
        remember(name, value);
        act(value);
      });
    }
  }

  restart() {
    clearTimeout(this.timer);
    for (const run of this.runs) Object.assign(run, { points: new Points(), cursor: "" });
    return this.follow(++this.restarts);
  }

  /** Request new points again and again until the next restart, which has its own requests. */
  async follow(restart) {
    try {
      const answers = await Promise.all(this.runs.map((run) => this.ask(run, { cursor: run.cursor })));
      if (restart !== this.restarts) return;
      answers.forEach((answer, index) => {
        this.runs[index].points.add(answer);
        this.runs[index].cursor = answer.cursor;
      });
      this.trouble("");
      this.draw();
      this.timer = setTimeout(
        () => this.follow(restart),
        answers.some((answer) => answer.running) ? PERIOD_MS : RESTING_PERIOD_MS,
      );
    } catch (error) {
      if (restart !== this.restarts) return;
      this.trouble(error.message);
      this.timer = setTimeout(() => this.follow(restart), PERIOD_MS);
    }
  }

  async ask(run, more) {
    const given = [...Object.entries({ axis: this.axis, ...more }).filter(([, value]) => value !== ""), ...this.pins];
    const answer = await fetch(`${run.url}?${new URLSearchParams(given)}`, { headers: { accept: "application/json" } });
    if (answer.ok) return answer.json();
    const isJson = answer.headers.get("content-type")?.startsWith("application/json");
    const { what, advice } = isJson ? await answer.json() : { what: await answer.text() };
    throw new Error([`${run.name}: ${what || answer.status}`, advice].filter(Boolean).join(" → "));
  }

  trouble(text) {
    const place = document.querySelector("[data-trouble]");
    place.hidden = !text;
    if (place.textContent !== text) place.textContent = text;
  }

  /** Show a part of the run: at once with the points at hand, then with finer points from the server. */
  async zoom(low, high) {
    const range = [low, high];
    Object.assign(this, { range, detail: null });
    remember("zoom", range.map((end) => Number(end.toPrecision(6))).join("~"));
    this.draw();
    const finer = await Promise.all(
      this.runs.map(async (run) => {
        const times = run.points.timesBetween(low, high, this.axis);
        const points = new Points();
        if (times) points.add(await this.ask(run, { start: times[0], end: times[1] }));
        return points;
      }),
    ).catch((error) => {
      this.trouble(error.message);
      return null;
    });
    if (this.range !== range) return;
    this.detail = finer;
    this.draw();
  }

  zoomAsLinked(text) {
    const [low, high] = (text ?? "").split("~").map(Number);
    if (high > low) this.zoom(low, high);
  }

  whole() {
    this.range = this.detail = null;
    remember("zoom", null);
    this.draw();
  }

  draw() {
    document.querySelector("[data-whole]").disabled = !this.range;
    const points = this.detail ?? this.runs.map((run) => run.points);
    const lines = this.charts.map((chart) =>
      this.runs.flatMap((run, nthRun) => this.linesOf(chart.card.dataset.chart, run, points[nthRun], nthRun)),
    );
    const [axis, runs, range] = [this.axis, this.runs.length, this.range ?? extent(lines.flat())];
    const bounds = distinct(points.flatMap((one) => one.bounds));
    this.charts.forEach((chart, index) => {
      const own = bounds.filter((bound) => bound.chart === chart.card.dataset.chart);
      chart.show(lines[index], { axis, range, runs, bounds: own });
    });
  }

  linesOf(chart, run, points, nthRun) {
    return points.ofChart(chart).map((curve, nthCurve) => {
      const { label, measured, right } = curve;
      const line = points.line(curve, this.axis, this.smoothing);
      return { label, measured, right, run: run.name, nthRun, nthCurve, ...line };
    });
  }
}

/** Return the range over all lines: all charts show the same range, so that they can be compared. */
function extent(lines) {
  const ends = lines.filter((line) => line.xs.length).flatMap((line) => [line.xs[0], line.xs.at(-1)]);
  return [Math.min(...ends), Math.max(...ends)];
}

/** Store a choice in the address, so that a link shows the same; null removes it. */
function remember(name, value) {
  const address = new URL(location.href);
  if (value === null) address.searchParams.delete(name);
  else address.searchParams.set(name, value);
  history.replaceState(null, "", address);
}

/** Return the limits of all runs, without duplicates. */
function distinct(bounds) {
  return [...new Map(bounds.map((bound) => [JSON.stringify(bound), bound])).values()];
}

if (!leaving) new Page();
