// The Run page: what is asked of the server and when, and which part of the run all pictures show.

import { Chart } from "./chart.js";
import { Points } from "./series.js";

const PERIOD_MS = 2000;
const RESTING_PERIOD_MS = 15000;

class Page {
  constructor() {
    const query = new URLSearchParams(location.search);
    this.axis = query.get("axis") ?? "train_step";
    this.smoothing = Number(query.get("smoothing") ?? 0.9);
    this.range = null;
    this.detail = null; // points of the zoomed part, finer
    this.runs = [...document.querySelectorAll("[data-run]")].map(({ dataset }) => ({
      name: dataset.run,
      url: dataset.url,
    }));
    const told = { zoom: (low, high) => this.zoom(low, high), whole: () => this.whole() };
    this.charts = [...document.querySelectorAll("[data-chart]")].map((card) => new Chart(card, told));
    this.listen();
    this.restart();
  }

  listen() {
    this.choice("axis", (value) => {
      this.axis = value;
      this.range = this.detail = null;
      this.restart();
    });
    this.choice("smoothing", (value) => {
      this.smoothing = Number(value);
      this.draw();
    });
    document.querySelector("[data-whole]").addEventListener("click", () => this.whole());
    document
      .querySelector("[data-compare]")
      ?.addEventListener("change", (event) => event.currentTarget.requestSubmit());
    document.addEventListener("themechange", () => this.draw());
  }

  /** Buttons of which one is pressed; the choice stands in the address. */
  choice(name, act) {
    const buttons = [...document.querySelectorAll(`[data-${name}]`)];
    const press = (value) =>
      buttons.forEach((button) => button.setAttribute("aria-pressed", button.dataset[name] === value));
    press(String(this[name]));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        const value = button.dataset[name];
        press(value);
        const address = new URL(location.href);
        address.searchParams.set(name, value);
        history.replaceState(null, "", address);
        act(value);
      });
    }
  }

  restart() {
    clearTimeout(this.timer);
    for (const run of this.runs) Object.assign(run, { points: new Points(), cursor: "" });
    this.follow(this.axis);
  }

  async follow(axis) {
    try {
      const answers = await Promise.all(this.runs.map((run) => this.ask(run, axis, { cursor: run.cursor })));
      if (axis !== this.axis) return; // another axis was chosen meanwhile: its own turn runs already
      answers.forEach((answer, index) => {
        this.runs[index].points.add(answer);
        this.runs[index].cursor = answer.cursor;
      });
      this.trouble("");
      this.draw();
      this.timer = setTimeout(
        () => this.follow(axis),
        answers.some((answer) => answer.running) ? PERIOD_MS : RESTING_PERIOD_MS,
      );
    } catch (error) {
      this.trouble(error.message);
      this.timer = setTimeout(() => this.follow(axis), PERIOD_MS);
    }
  }

  async ask(run, axis, more) {
    const given = Object.entries({ axis, ...more }).filter(([, value]) => value !== "");
    const answer = await fetch(`${run.url}?${new URLSearchParams(given)}`, { headers: { accept: "application/json" } });
    const body = await answer.json();
    if (!answer.ok) throw new Error([`${run.name}: ${body.what}`, body.advice].filter(Boolean).join(" → "));
    return body;
  }

  trouble(text) {
    const place = document.querySelector("[data-trouble]");
    place.hidden = !text;
    if (place.textContent !== text) place.textContent = text;
  }

  /** Show a part of the run, at once from what is here, then with finer points. */
  async zoom(low, high) {
    const range = [low, high];
    Object.assign(this, { range, detail: null });
    this.draw();
    const finer = await Promise.all(
      this.runs.map(async (run) => {
        const times = run.points.timesBetween(low, high, this.axis);
        const points = new Points();
        if (times) points.add(await this.ask(run, this.axis, { start: times[0], end: times[1] }));
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

  whole() {
    this.range = this.detail = null;
    this.draw();
  }

  draw() {
    document.querySelector("[data-whole]").disabled = !this.range;
    const points = this.detail ?? this.runs.map((run) => run.points);
    const lines = this.charts.map((chart) =>
      this.runs.flatMap((run, nthRun) => this.linesOf(chart.card.dataset.chart, run, points[nthRun], nthRun)),
    );
    const range = this.range ?? extent(lines.flat());
    this.charts.forEach((chart, index) => chart.show(lines[index], { axis: this.axis, range, runs: this.runs.length }));
  }

  linesOf(chart, run, points, nthRun) {
    return points.ofChart(chart).map((curve, nthCurve) => {
      const [xs, raw, ys] = points.line(curve, this.axis, this.smoothing);
      return { label: curve.label, run: run.name, nthRun, nthCurve, marked: curve.marked, xs, raw, ys };
    });
  }
}

/** All pictures show the same part of the run, so that they can be read one below the other. */
function extent(lines) {
  const ends = lines.filter((line) => line.xs.length).flatMap((line) => [line.xs[0], line.xs.at(-1)]);
  return [Math.min(...ends), Math.max(...ends)];
}

new Page();
