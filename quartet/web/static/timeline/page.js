// The Timeline page: which stretch of time is shown, requests to the server, and the buttons.

import { describePiece } from "./density.js";
import { listen } from "./hands.js";
import { Picture } from "./picture.js";
import { Stretch } from "./stretch.js";
import { describe, linkTo, shareSections } from "./words.js";

const FOLLOW_MS = 2000;
const REST_MS = 120; // while dragging, the server is asked only after the pointer has rested this long
const HINT_PIXELS = 330;
const DENSE = "In rows with many short spans, the height is the share of time of each activity. Zoom in to see each span.";
const TRUNCATED =
  "This window has more spans than can be read: the longest of each row are shown, and shares of time are too low. " +
  "Zoom in to see all of them.";

class Page {
  constructor(board) {
    this.board = board;
    this.find = (name) => board.querySelector(`[data-${name}]`);
    this.follow = this.find("follow");
    this.help = this.find("note").textContent;
    this.when = document.querySelector("[data-when]");
    this.stretch = new Stretch(board.dataset);
    const keys = [...board.querySelectorAll("[data-activity]")];
    const colours = keys.map((key) => [key.dataset.activity, key.querySelector("rect").getAttribute("fill")]);
    this.picture = new Picture(board.querySelector("canvas"), this.stretch, Object.fromEntries(colours));
    this.data = { start: 0, seconds: 0, rows: [], shares: [] };
    this.asked = this.timer = 0;
    listen(this.picture, this);
    this.listen();
    this.open();
  }

  // Show the stretch in the address or, without one, the stretch that the server proposes.
  open() {
    const [start, seconds] = location.hash.slice(1).split(",").map(Number);
    const linked = Number.isFinite(start) && Number.isFinite(seconds) && seconds > 0;
    if (linked) this.stopFollowing();
    this.show({ ...(linked ? { start, seconds } : {}), now: true });
  }

  listen() {
    for (const button of this.board.querySelectorAll("[data-move]")) {
      button.addEventListener("click", () => this.move(Number(button.dataset.move)));
    }
    for (const button of this.board.querySelectorAll("[data-length]")) {
      button.addEventListener("click", () => this.zoom(Number(button.dataset.length) / this.stretch.seconds));
    }
    this.follow?.addEventListener("click", () => {
      this.follow.setAttribute("aria-pressed", String(!this.following));
    });
    this.find("where").addEventListener("input", ({ target }) => {
      this.drag(this.stretch.startAt(Number(target.value) / 1000));
    });
    document.addEventListener("themechange", () => this.picture.paint(this.data));
    new ResizeObserver(() => this.picture.paint(this.data)).observe(this.picture.canvas.parentElement);
    setInterval(() => this.tick(), FOLLOW_MS);
  }

  get following() {
    return this.follow?.getAttribute("aria-pressed") === "true";
  }

  stopFollowing() {
    this.follow?.setAttribute("aria-pressed", "false");
  }

  // Follow the newest record that the server reported: the browser's clock may differ from those of the run.
  tick() {
    if (!this.following || document.hidden) return;
    this.show({ start: this.stretch.last - this.stretch.seconds, now: true });
  }

  show({ start = this.stretch.start, seconds = this.stretch.seconds, now = false } = {}) {
    const { stretch } = this;
    stretch.set(start, seconds);
    this.find("where").value = Math.round(1000 * stretch.share);
    for (const button of this.board.querySelectorAll("[data-length]")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.length) === stretch.seconds));
    }
    this.when.textContent = new Date(stretch.start * 1000).toLocaleString();
    this.picture.paint(this.data);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), now ? 0 : REST_MS);
  }

  async read() {
    const number = ++this.asked;
    const { start, seconds } = this.stretch;
    history.replaceState(null, "", `#${start.toFixed(3)},${seconds}`); // not in `show`: browsers limit its rate
    const query = new URLSearchParams({ start, seconds });
    const note = this.find("note");
    try {
      const answer = await fetch(`${this.board.dataset.source}?${query}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const fresh = await answer.json();
      if (number !== this.asked) return;
      this.data = fresh;
      if (fresh.extent) this.stretch.reaches(...fresh.extent);
      note.textContent = this.noteOn(fresh);
    } catch (error) {
      if (number !== this.asked) return;
      note.textContent = `This window cannot be read: ${error.message}.`;
    }
    this.picture.paint(this.data);
    this.find("shares").replaceChildren(...shareSections(this.data.shares));
  }

  noteOn({ truncated, rows }) {
    if (!rows.length) return "Nothing was recorded in this window.";
    const limits = [truncated && TRUNCATED, rows.some((row) => row.density.length) && DENSE];
    return limits.filter(Boolean).join(" ") || this.help;
  }

  zoom(factor, time = this.stretch.start + this.stretch.seconds / 2) {
    const { start, seconds } = this.stretch;
    this.show({ start: time - (time - start) * factor, seconds: seconds * factor });
  }

  move(windows) {
    this.drag(this.stretch.start + windows * this.stretch.seconds);
  }

  drag(start) {
    this.stopFollowing();
    this.show({ start });
  }

  point(hit, { clientX, clientY }) {
    const hint = this.find("hint");
    hint.hidden = !hit;
    if (!hit) return;
    hint.textContent = this.describe(hit);
    hint.style.left = `${Math.min(clientX + 14, window.innerWidth - HINT_PIXELS)}px`;
    hint.style.top = `${clientY + 16}px`;
  }

  keep(hit) {
    const kept = this.find("kept");
    kept.hidden = !hit;
    if (!hit) return;
    kept.textContent = this.describe(hit);
    const link = hit.span && linkTo(hit.span[4], this.board.dataset.rollouts);
    if (link) kept.append(" · ", link);
  }

  describe(hit) {
    const began = this.data.start - this.stretch.first;
    if (hit.piece) return describePiece(hit.row, hit.piece, began + hit.offset, hit.seconds);
    return describe(hit, began);
  }
}

const board = document.querySelector("[data-timeline]");
if (board) new Page(board);
