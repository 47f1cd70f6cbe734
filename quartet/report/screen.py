"""Screen of a run in the terminal, for machines without a browser: charts, modules, alarms, tasks."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from quartet.errors import QuartetError, RecordsError
from quartet.ledger import Ledger
from quartet.ledger.rows import FamilyStats
from quartet.report.braille import Places, braille_line
from quartet.report.learning_curve import held_out_by_step
from quartet.report.show import count, decimal, percent
from quartet.report.snapshot import Snapshot, SnapshotReader
from quartet.telemetry.series import Point, read_series

CHART_COLUMNS, CHART_ROWS = 22, 3
_HELD_OUT = "held-out, greedy"
"""Label `HELD_OUT`, which is wider than a chart, without the word success."""
SMOOTHING = 0.7
REFRESH_SECONDS = 2.0
WINDOW_ROLLOUTS = 32
"""Number of newest rollouts over which success per task is computed, as control does."""


Show = Callable[[float | None], str]


class Chart(NamedTuple):
    """One metric of the screen."""

    label: str
    metric: str
    show: Show = decimal


CHARTS = (
    Chart("training success", "rollout/success", percent),
    Chart("reward", "train/reward_mean"),
    Chart("lag, train steps", "train/lag_mean_versions"),
    Chart("entropy, nats", "train/entropy_nats"),
    Chart("gap, nats", "train/gap_k1_nats", lambda value: decimal(value, 4)),
    Chart("gradient norm", "train/gradient_norm"),
    Chart("tokens/s out", "engine/generated_tokens_per_second", count),
)


def show_runs(run_dirs: Sequence[Path], console: Console) -> None:
    """Print the runs; in a terminal, refresh until no run is live or Ctrl-C is pressed. The runs are only read.

    If there are several runs, a run that cannot be read is listed with the reason. A single unreadable run raises its
    error.
    """
    with ExitStack() as stack:
        runs = [_Run(run_dir, stack, alone=len(run_dirs) == 1) for run_dir in run_dirs]
        live = stack.enter_context(Live(console=console, auto_refresh=False))
        while True:
            live.update(Group(*(run.drawn() for run in runs)), refresh=True)
            if not console.is_terminal or not any(run.running for run in runs):
                return
            time.sleep(REFRESH_SECONDS)


class _Run:
    """One run of the screen."""

    def __init__(self, run_dir: Path, stack: ExitStack, *, alone: bool) -> None:
        """Prepare one run; `stack` closes it. If the run is not `alone`, an error is drawn in its place."""
        self._run_dir, self._stack, self._alone = run_dir, stack, alone
        self._reader: SnapshotReader | None = None
        self.running = False

    def drawn(self) -> RenderableType:
        try:
            self._reader = self._reader or self._stack.enter_context(SnapshotReader(self._run_dir))
            snapshot = self._reader.read()
            self.running = snapshot.running
            return screen(self._reader, snapshot)
        except QuartetError as error:
            if self._alone:
                raise
            self.running = False
            title = Text(f"{self._run_dir}: unreadable")
            return Panel(Text(str(error), style="yellow"), title=title, title_align="left")


def screen(reader: SnapshotReader, snapshot: Snapshot) -> RenderableType:
    """Return the screen of one run, most important parts first, since a small terminal shows only the beginning."""
    tasks = reader.ledger.statistics.families(WINDOW_ROLLOUTS)
    drawn = charts(reader.run_dir, reader.ledger, snapshot.status.train_step)
    return Group(snapshot.panel(), drawn, task_columns(tasks))


def charts(run_dir: Path, ledger: Ledger, train_step: int) -> RenderableType:
    """Return the charts side by side, all from train step 0 to `train_step`."""
    try:
        page = read_series(run_dir, [chart.metric for chart in CHARTS], axis="train_step", max_points=4 * CHART_COLUMNS)
    except RecordsError as error:
        return Text(f"no charts: {error}", style="yellow")
    found = {series.name: _smooth(_by_step(series.points)) for series in page.series}
    drawn = [
        _chart(chart.label, found[chart.metric], chart.show, train_step) for chart in CHARTS if chart.metric in found
    ]
    if held_out := held_out_by_step(ledger):
        drawn.insert(1, _chart(_HELD_OUT, held_out, percent, train_step))
    return Padding(Columns(drawn, padding=(0, 3)), (1, 2)) if drawn else Text()


def task_columns(tasks: dict[str, FamilyStats]) -> RenderableType:
    """Return the success of each family's newest rollouts and its number of groups, lowest success first."""
    if not tasks:
        return Text()
    lines = [_task(name, tasks[name]) for name in sorted(tasks, key=lambda name: (tasks[name].success_rate, name))]
    head = Rule(
        Text(f"tasks: success over the newest {WINDOW_ROLLOUTS} rollouts, groups so far"), style="dim", align="left"
    )
    return Group(head, Padding(Columns(lines, padding=(0, 3), column_first=True), (0, 2)))


def _chart(label: str, places: Places, show: Show, train_step: int) -> RenderableType:
    values = [value for _, value in places]
    line = Text("\n".join(braille_line(places, CHART_COLUMNS, CHART_ROWS, train_step)), style="cyan")
    span = Text(f"{show(min(values))} to {show(max(values))}", style="dim")
    return Group(_title(label, show(values[-1])), line, _axis(train_step), span, Text())


def _title(label: str, newest: str) -> Table:
    title = Table.grid(expand=True)
    title.width = CHART_COLUMNS
    title.add_column()
    title.add_column(justify="right")
    title.add_row(Text(label, style="dim"), Text(newest, style="bold"))
    return title


def _axis(train_step: int) -> Text:
    """Return the label under a chart: its first and its last train step."""
    last = count(train_step)
    return Text(f"0{'train step':^{CHART_COLUMNS - 1 - len(last)}}{last}", style="dim")


def _task(name: str, stats: FamilyStats) -> Text:
    success = percent(stats.success_rate if stats.rollouts else None)
    label = name if len(name) <= 22 else name[:21] + "…"
    style = "bold" if stats.success_rate < 0.5 else ""
    return Text.assemble(f"{label:22} ", (f"{success:>5}", style), (f"{stats.groups_admitted:>5}", "dim"))


def _by_step(points: Sequence[Point]) -> Places:
    """Return (train step, mean of all records made while this step was the newest), by train step."""
    sums: dict[float, float] = defaultdict(float)
    counts: dict[float, int] = defaultdict(int)
    for point in points:
        sums[point.x] += point.sum
        counts[point.x] += point.count
    return [(step, sums[step] / counts[step]) for step in sorted(sums)]


def _smooth(places: Places) -> Places:
    """Return the exponential moving average."""
    smoothed: list[tuple[float, float]] = []
    for step, value in places:
        smoothed.append((step, SMOOTHING * smoothed[-1][1] + (1 - SMOOTHING) * value if smoothed else value))
    return smoothed
