// A row with too many spans to draw each: in each piece of the window, the activities' shares of time are stacked.

import { words } from "./words.js";

/** Draw one piece. `box`: { x, y, width, tall } in pixels; `piece`: share of the time by activity; waits stay empty. */
export function drawPiece(pen, { x, y, width, tall }, piece, colours, inks) {
  pen.fillStyle = inks.raised;
  pen.fillRect(x, y, width, tall);
  let bottom = y + tall;
  for (const [name, share] of Object.entries(piece)) {
    if (name === "wait") continue;
    const height = Math.min(share * tall, bottom - y);
    bottom -= height;
    pen.fillStyle = colours[name] ?? inks.muted;
    pen.fillRect(x, bottom, width, height);
  }
}

/** Describe a piece in words, the largest share first. It lasts `seconds` and starts `began` seconds into the run. */
export function describePiece(row, piece, began, seconds) {
  const shares = Object.entries(piece)
    .sort((a, b) => b[1] - a[1])
    .map(([name, share]) => `${words(name)} ${(100 * share).toFixed(0)} %`);
  const place = [row.role, row.lane].filter(Boolean).join(", ");
  return [shares.join(", ") || "nothing recorded", `${seconds.toFixed(2)} s`, `from ${began.toFixed(2)} s`, place].join(
    " · ",
  );
}
