// Marks on a chart besides its curves: intervals of measured points, and limits of the recipe.

import { colour } from "./colours.js";

/** Draw a vertical bar over the 95 % interval of each measured point. */
export function drawIntervals(chart, plot) {
  const [pen, ratio] = [plot.ctx, devicePixelRatio];
  const tick = 3 * ratio;
  within(plot, () => {
    for (const line of chart.visible().filter((one) => one.measured)) {
      pen.strokeStyle = colour(chart.name(line));
      pen.lineWidth = 1.5 * ratio;
      line.xs.forEach((x, at) => {
        const [low, high] = line.marks[at];
        const place = plot.valToPos(x, "x", true);
        const [top, bottom] = [plot.valToPos(high, "y", true), plot.valToPos(low, "y", true)];
        stroke(pen, [place, top], [place, bottom]);
        for (const end of [top, bottom]) stroke(pen, [place - tick, end], [place + tick, end]);
      });
    }
  });
}

/** Draw a dotted horizontal line at each limit of the recipe; the legend has its name. */
export function drawBounds(chart, plot) {
  const [pen, ratio] = [plot.ctx, devicePixelRatio];
  const { left, width } = plot.bbox;
  within(plot, () => {
    pen.strokeStyle = pen.fillStyle = colour("--muted");
    pen.lineWidth = 1.5 * ratio;
    pen.setLineDash([2 * ratio, 4 * ratio]);
    for (const bound of chart.bounds) {
      const y = plot.valToPos(bound.value, "y", true);
      stroke(pen, [left, y], [left + width, y]);
    }
  });
}

function stroke(pen, [x1, y1], [x2, y2]) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function within(plot, draw) {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.rect(left, top - 4, width, height + 8);
  plot.ctx.clip();
  draw();
  plot.ctx.restore();
}
