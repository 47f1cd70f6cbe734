"""Live panel of a run in the terminal, and its one-line form for logs."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from quartet.manager.stop import resume_command
from quartet.report.alarms import Alarm
from quartet.report.held_out import HeldOutResult
from quartet.report.labels import RECENT_LAG, RECENT_SUCCESS, TRAINING_ROLLOUTS
from quartet.report.run_progress import RunProgress
from quartet.report.show import count, decimal, duration, percent
from quartet.report.standings import RECENT_ROLLOUTS, RECENT_TRAIN_STEPS
from quartet.report.status import SILENT_AFTER_SECONDS, ModuleStatus, RunStatus
from quartet.train.starvation import SOLVED

MODULE_ORDER = ("manager", "worker", "engine", "env", "trainer")
BAR_COLUMNS = 16
HeldOut = Mapping[str, Sequence[HeldOutResult]]
"""Evaluations before and after training in the order of their time, by the label of their success."""
NO_HELD_OUT: HeldOut = MappingProxyType({})


def panel(status: RunStatus, alarms: Sequence[Alarm] = ()) -> Panel:
    """Return the panel of a live run: learning, speed, queues, what each module does or waits for, and alarms."""
    parts: list[RenderableType] = [_numbers(status), Text()]
    if status.progress:
        parts = [progress_line(status.progress), Text(), *parts]
    parts += [*_policies(status), *_forked(status), *_quarantined(status), modules_table(status)]
    if alarms:
        parts += [Text(), alarms_table(alarms)]
    return _framed(status, status.phase, parts)


def stopped_panel(status: RunStatus, run: str = "RUN", held_out: HeldOut = NO_HELD_OUT) -> Panel:
    """Return the panel of a run that is not live: its results, why it ended, and the command that continues it. `run`
    is the run's folder in this command, `held_out` the evaluations by their label."""
    ended = f"ended: {status.stop_reason}" if status.stop_reason else f"interrupted while {status.phase}"
    resume = resume_command(run, status.stop_reason, status.training_so_far)
    advice = "continue with (raise a limit that was reached):" if status.stop_reason else "continue with:"
    if status.stop_reason.startswith(SOLVED):
        advice = "the policy fails none of these tasks: train it on harder ones, or continue with:"
    if status.stop_reason.startswith("error: ") and not status.trajectories_stored:
        advice = "if the recipe is wrong, correct it and start again with --fresh; otherwise continue with:"
    return _framed(
        status,
        "not running",
        [
            *(_success(label, results) for label, results in held_out.items() if results),
            _reached(status),
            Text(),
            *_policies(status),
            *_quarantined(status),
            Text(f"{ended}\n{advice}\n  {resume}"),
        ],
    )


def plain_line(status: RunStatus) -> str:
    """Return the status as one line, for output that is not a terminal."""
    waits = "; ".join(
        f"{m.module} waits for {m.waiting_for} (until {m.ends_when})" for m in status.modules if m.waiting_for
    )
    progress = f"  {percent(status.progress.share)} done" if status.progress else ""
    return (
        f"{status.phase}{progress}  step {status.train_step}  version {status.policy_version}  "
        f"success {percent(status.success_recent)} of the newest {RECENT_ROLLOUTS}  "
        f"{status.rollouts_per_second:.1f} rollouts/s  "
        f"{status.generated_tokens_per_second:.0f} tokens/s out  {status.prompt_tokens_per_second:.0f} in  "
        f"lag {decimal(status.mean_lag)} over {RECENT_TRAIN_STEPS} steps  {_counts(status)}  "
        f"[{waits or 'no module waits'}]"
    )


def progress_line(progress: RunProgress) -> Table:
    """Return a line with the progress of the phase and the limit that will end the phase."""
    left = f" · {_roughly(progress.seconds_left)} left" if progress.seconds_left else ""
    line = Table.grid(padding=(0, 2))
    line.add_row(
        ProgressBar(total=1.0, completed=progress.share, width=BAR_COLUMNS),
        Text.assemble((percent(progress.share), "bold"), (f"  {progress.what}{left}", "dim")),
    )
    return line


def modules_table(status: RunStatus) -> Table:
    """Return a table of the modules: what each does or waits for, for how long, and what would end the wait."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("module", no_wrap=True)
    table.add_column("state")
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("what would end it")
    order = {name: place for place, name in enumerate(MODULE_ORDER)}
    for module in sorted(status.modules, key=lambda m: order.get(m.module.partition("-")[0], len(order))):
        since = "" if status.absence(module) else _roughly(module.since_seconds)
        table.add_row(Text(module.module), _state(status, module), since, Text(module.ends_when))
    return table


def alarms_table(alarms: Sequence[Alarm]) -> Table:
    """Return a table of the alarms with advice."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("alarm")
    table.add_column("what to try")
    for alarm in alarms:
        table.add_row(Text(alarm.what, style="bold red"), Text(alarm.advice))
    return table


def _framed(status: RunStatus, doing: str, parts: list[RenderableType]) -> Panel:
    title = Text(f"quartet · {status.name} · {doing}")
    return Panel(Group(*parts), title=title, border_style="dim", padding=(1, 2))


def _policy_numbers(status: RunStatus) -> Table:
    """Return a table that begins with the policy's success, lag, train step and version.

    It has two columns, because three of them do not fit a terminal of 80.
    """
    table = Table.grid(padding=(0, 3))
    table.add_row(_pair(RECENT_SUCCESS, percent(status.success_recent)), _pair("train step", count(status.train_step)))
    table.add_row(_pair(RECENT_LAG, decimal(status.mean_lag)), _pair("version", count(status.policy_version)))
    return table


def _numbers(status: RunStatus) -> Table:
    table = _policy_numbers(status)
    table.add_row(
        _pair(TRAINING_ROLLOUTS, count(status.training_rollouts)),
        _pair("rollouts/s", decimal(status.rollouts_per_second, 1)),
    )
    table.add_row(_pair("queued", count(status.rollouts["queued"])), _pair("running", count(status.rollouts["leased"])))
    table.add_row(
        _pair("groups open", count(status.groups["open"])), _pair("groups ready", count(status.groups["trainable"]))
    )
    table.add_row(
        _pair("tokens/s in", count(status.prompt_tokens_per_second)),
        _pair("tokens/s out", count(status.generated_tokens_per_second)),
    )
    return table


def _reached(status: RunStatus) -> Table:
    """Return a table of the numbers that are meaningful for a run that is not live."""
    table = _policy_numbers(status)
    table.add_row(
        _pair(TRAINING_ROLLOUTS, count(status.training_rollouts)),
        _pair("groups ready", count(status.groups["trainable"])),
    )
    return table


def _success(label: str, results: Sequence[HeldOutResult]) -> Text:
    """Return the success of the newest evaluation, after that of the one before training."""
    last = results[-1]
    before = [percent(one.success) for one in results[:1] if one.version == 0 and one is not last]
    return Text.assemble(
        (f"{label}  ", "dim"),
        (" → ".join([*before, percent(last.success)]), "bold"),
        (f" at train step {count(last.train_step)}", "dim"),
    )


def _policies(status: RunStatus) -> list[RenderableType]:
    """Return a table of the policies; nothing for a run with a single policy."""
    if not status.policies:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("policy", RECENT_SUCCESS, "train step", "version", "served", RECENT_LAG):
        table.add_column(title, justify="left" if title == "policy" else "right")
    for one in status.policies:
        numbers = [percent(one.success_recent), count(one.train_step)] if one.trained else ["", "frozen"]
        served = "" if one.served_version is None else count(one.served_version)
        table.add_row(Text(one.name), *numbers, count(one.version), served, decimal(one.mean_lag))
    return [table, Text()]


def _forked(status: RunStatus) -> list[RenderableType]:
    return [Text(f"rollouts forked from others: {count(status.forked_rollouts)}\n")] if status.forked_rollouts else []


def _quarantined(status: RunStatus) -> list[RenderableType]:
    lines = []
    if status.quarantined_groups:
        lines.append(f"groups quarantined because their train steps failed: {status.quarantined_groups}\n")
    if status.quarantined_tasks:
        lines.append(f"tasks quarantined because their environment failed: {', '.join(status.quarantined_tasks)}\n")
    return [Text(line, style="red") for line in lines]


def _roughly(seconds: float) -> str:
    """Format a duration in whole seconds, or in whole minutes from two minutes on; a negative one as 0 s."""
    return f"{max(seconds, 0.0):.0f} s" if seconds < 120 else duration(60 * (seconds // 60)).removesuffix(" 0 s")


def _state(status: RunStatus, module: ModuleStatus) -> Text:
    if absence := status.absence(module):
        return Text(absence, style="dim")
    if module.silent_seconds > SILENT_AFTER_SECONDS:
        return Text(f"silent for {module.silent_seconds:.0f} s", style="bold red")
    if module.waiting_for:
        return Text(f"waits for {module.waiting_for}", style="yellow")
    return Text(module.state, style="green")


def _pair(label: str, value: str) -> Text:
    return Text.assemble((f"{label}  ", "dim"), (value, "bold"), no_wrap=True)


def _counts(status: RunStatus) -> str:
    rollouts, groups = status.rollouts, status.groups
    return f"{rollouts['queued']} queued, {rollouts['leased']} running, {groups['trainable']} groups ready"
