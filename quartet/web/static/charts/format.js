// Formatting of numbers for people.

export function number(value, share) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (share) return `${(100 * value).toFixed(0)} %`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1);
  return value.toLocaleString("en", { maximumFractionDigits: size < 1 ? 4 : size < 100 ? 2 : 0 });
}

export function elapsed(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${trimmed(seconds / 60)} min`;
  if (seconds < 86400) return `${trimmed(seconds / 3600)} h`;
  return `${trimmed(seconds / 86400)} d`;
}

export const place = (x, axis) => (axis === "time" ? elapsed(x) : Math.round(x).toLocaleString("en"));

const trimmed = (value) => Number(value.toFixed(1)).toString();

/** Format the last measured point at most `reach` from `x`, or the last of all if `x` is null; a dash without one. */
export function measured(line, x, reach) {
  const near = (other) => x === null || Math.abs(other - x) <= reach;
  const at = line.xs.findLastIndex(near);
  if (at < 0) return "–";
  const [low, high, episodes] = line.marks[at];
  return `${number(line.ys[at], true)} (${percent(low)}–${percent(high)}, n = ${episodes.toLocaleString("en")})`;
}

const percent = (value) => (100 * value).toFixed(0);
