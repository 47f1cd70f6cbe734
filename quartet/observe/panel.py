"""The live panel of a run in the terminal, and its one-line form for logs."""

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from quartet.observe.status import ModuleStatus, RunStatus

MODULE_ORDER = ("manager", "worker", "engine", "env", "trainer")
SILENT_AFTER_SECONDS = 10.0


def panel(status: RunStatus) -> Panel:
    """The run at a glance: learning, speed, queues, and what each module does or waits for."""
    return _framed(status, status.phase, _modules(status))


def resting_panel(status: RunStatus) -> Panel:
    """What a run that no process works on has reached, and why it ended."""
    ended = f"ended: {status.stop_reason}" if status.stop_reason else "interrupted"
    advice = "go on with `quartet train RUN/config.toml --run-dir RUN --resume`; after a limit, raise it with --set"
    return _framed(status, "not running", Text(f"{ended}\n{advice}"))


def plain_line(status: RunStatus) -> str:
    """One line, for a terminal that is none."""
    waits = "; ".join(
        f"{m.module} waits for {m.waiting_for} (until {m.ends_when})" for m in status.modules if m.waiting_for
    )
    return (
        f"{status.phase}  step {status.train_step}  version {status.policy_version}  "
        f"success {_percent(status.success_recent)}  {status.rollouts_per_second:.1f} rollouts/s  "
        f"{status.generated_tokens_per_second:.0f} tokens/s out  {status.prompt_tokens_per_second:.0f} in  "
        f"lag {_number(status.mean_lag)}  {_counts(status)}  [{waits or 'nobody waits'}]"
    )


def _framed(status: RunStatus, doing: str, below: Table | Text) -> Panel:
    """The numbers of the run, and something below them."""
    title = f"quartet · {status.name} · {doing}"
    return Panel(Group(_numbers(status), Text(), below), title=title, border_style="dim", padding=(1, 2))


def _numbers(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_row(
        _pair("training success", _percent(status.success_recent)),
        _pair("train step", str(status.train_step)),
        _pair("version", str(status.policy_version)),
    )
    table.add_row(
        _pair("rollouts", f"{status.trajectories_stored:,}"),
        _pair("rollouts/s", f"{status.rollouts_per_second:.1f}"),
        _pair("mean lag", _number(status.mean_lag)),
    )
    table.add_row(
        _pair("queued", str(status.rollouts["queued"])),
        _pair("running", str(status.rollouts["leased"])),
        _pair("tokens/s in", f"{status.prompt_tokens_per_second:,.0f}"),
    )
    table.add_row(
        _pair("groups open", str(status.groups["open"])),
        _pair("groups ready", str(status.groups["trainable"])),
        _pair("tokens/s out", f"{status.generated_tokens_per_second:,.0f}"),
    )
    return table


def _modules(status: RunStatus) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("module", "state", "for", "what would end it"):
        table.add_column(heading)
    order = {name: place for place, name in enumerate(MODULE_ORDER)}
    for module in sorted(status.modules, key=lambda m: order.get(m.module, len(order))):
        table.add_row(module.module, _state(module), f"{module.since_seconds:.0f} s", module.ends_when)
    return table


def _state(module: ModuleStatus) -> Text:
    if module.silent_seconds > SILENT_AFTER_SECONDS:
        return Text(f"silent for {module.silent_seconds:.0f} s", style="bold red")
    if module.waiting_for:
        return Text(f"waits for {module.waiting_for}", style="yellow")
    return Text(module.state, style="green")


def _pair(label: str, value: str) -> Text:
    return Text.assemble((f"{label}  ", "dim"), (value, "bold"), no_wrap=True)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _counts(status: RunStatus) -> str:
    rollouts, groups = status.rollouts, status.groups
    return f"{rollouts['queued']} queued, {rollouts['leased']} running, {groups['trainable']} groups ready"
