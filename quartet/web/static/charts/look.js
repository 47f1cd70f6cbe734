// Style of a chart as uPlot's options: axes, grid, lines, cursor. Lengths are relative to the page's text size.

import { colour } from "./colours.js";
import { elapsed, number } from "./format.js";

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];
const SECONDS = [
  1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800,
];
const FAINT = 0.22;

/** Return uPlot's options for a chart, without size and hooks. */
export function look(chart) {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return {
    legend: { show: false },
    padding: [0.6 * rem, 0.6 * rem, 0, 0],
    cursor: cursor(chart, rem),
    scales: {
      x: { time: false },
      y: { distr: chart.log ? 3 : 1, range: (plot, low, high) => chart.heights(low, high) },
      ...(hasRight(chart) ? { share: { range: [0, 1] } } : {}),
    },
    axes: axes(chart, rem),
    series: [{}, ...chart.lines.flatMap((line) => [faintly(chart, line), strongly(chart, line, rem)])],
  };
}

/** Return the cursor's options: it moves in all charts together; zooming is left to the page. */
function cursor(chart, rem) {
  const moves = (type) => type === "mousemove" || type === "mouseleave";
  return {
    y: false,
    sync: { key: "quartet", filters: { pub: moves } },
    drag: { x: true, y: false, setScale: false },
    points: { size: 0.45 * rem },
    bind: { dblclick: () => () => chart.tell.whole() },
  };
}

const hasRight = (chart) => chart.lines.some((line) => line.right);

function axes(chart, rem) {
  const common = {
    stroke: colour("--muted"),
    font: `${0.78 * rem}px system-ui, sans-serif`,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const byTime = chart.axis === "time";
  const along = { size: 1.8 * rem, space: 4.5 * rem, incrs: byTime ? SECONDS : STEPS };
  const up = { size: 3.4 * rem, space: 2 * rem };
  const shown = (share) => (plot, ys) => ys.map((y) => (y === null ? "" : number(y, share)));
  const right = { ...common, ...up, scale: "share", side: 1, grid: { show: false }, values: shown(true) };
  return [
    { ...common, ...along, values: (plot, xs) => xs.map((x) => (byTime ? elapsed(x) : number(x))) },
    { ...common, ...up, values: shown(chart.share) },
    ...(hasRight(chart) ? [right] : []),
  ];
}

function faintly(chart, line) {
  const stroke = colour(chart.name(line)).replace("rgb(", "rgba(").replace(")", `, ${FAINT})`);
  return { stroke, width: 1, spanGaps: true, points: { show: false }, scale: scale(line) };
}

/** Return the style of a smoothed line, or of measured points, which are not connected: nothing was measured between. */
function strongly(chart, line, rem) {
  const stroke = colour(chart.name(line));
  if (line.measured) return { stroke, paths: () => null, points: { show: true, size: 0.45 * rem, fill: stroke } };
  const dash = chart.dash(line);
  return { stroke, width: 0.11 * rem, dash, spanGaps: true, points: { show: false }, scale: scale(line) };
}

const scale = (line) => (line.right ? "share" : "y");
