// The points of a chart as a CSV file: one row per point of a curve.

const HEAD = ["run", "curve", "value", "smoothed", "interval low", "interval high", "episodes"];

/** Save the points of `lines` that lie within `range` on the axis. */
export function save(title, axis, lines, [low, high]) {
  const rows = lines.flatMap((line) =>
    line.xs.flatMap((x, at) =>
      x < low || x > high ? [] : [[x, line.run, line.label, line.raw[at], line.ys[at], ...(line.marks[at] ?? [])]],
    ),
  );
  const text = [[axis.replace("time", "seconds"), ...HEAD], ...rows].map((row) => row.map(cell).join(",")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text, "\n"], { type: "text/csv" }));
  link.download = `${lines[0]?.run ?? "run"}-${title.replaceAll(/[^a-zA-Z0-9]+/g, "-")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Return a cell of the file. A text that a spreadsheet would read as a formula gets an apostrophe before it. */
export function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
