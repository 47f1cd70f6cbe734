// One span as a bar, filled with its activity's colour (a wait is hatched), with its name if that fits.

import { words } from "./words.js";

const LEAST_WIDTH_WITH_NAME = 46;

// `box`: { x, y, width, tall } in pixels; [left, right] is the visible range.
export function drawBar(pen, box, span, { shade, colour, inks, left, right }) {
  const [, , name, reason] = span;
  const waits = name === "wait";
  pen.fillStyle = shade || waits ? inks.raised : (colour ?? inks.muted);
  pen.fillRect(box.x, box.y, box.width, box.tall);
  if (waits) hatch(pen, box, inks.muted, left, right);
  if (shade || box.width <= LEAST_WIDTH_WITH_NAME) return;
  write(pen, waits ? `waits: ${reason}` : words(name), box, waits ? inks.text : inkOn(colour), left);
}

function hatch(pen, { x, y, width, tall }, ink, left, right) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, tall);
  pen.clip();
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.45;
  pen.beginPath();
  for (let at = Math.max(x, left) - tall; at < Math.min(x + width, right); at += 6) {
    pen.moveTo(at, y + tall);
    pen.lineTo(at + tall, y);
  }
  pen.stroke();
  pen.restore();
}

function write(pen, text, { x, y, width, tall }, ink, leftEdge) {
  const left = Math.max(x, leftEdge);
  pen.save();
  pen.beginPath();
  pen.rect(left, y, x + width - left - 3, tall);
  pen.clip();
  pen.fillStyle = ink;
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(text, left + 4, y + tall / 2 + 0.5);
  pen.restore();
}

// Black or white, whichever is readable on the colour, by its relative luminance (WCAG, with the plain exponent 2.2).
function inkOn(colour) {
  const part = (at) => (Number.parseInt((colour ?? "#777777").slice(at, at + 2), 16) / 255) ** 2.2;
  const [red, green, blue] = [part(1), part(3), part(5)];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}
