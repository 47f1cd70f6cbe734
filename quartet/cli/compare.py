"""`quartet compare`: several runs side by side, with intervals over seeds."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUNS, Amount
from quartet.terminal.say import say


@click.command(name="compare")
@RUNS
@click.option(
    "--target",
    type=Amount(0, 1),
    metavar="SHARE",
    help="Success rate whose cost is computed; by default the highest multiple of 0.05 that all runs reached.",
)
@JSON
def command(runs: tuple[Path, ...], target: float | None, as_json: bool) -> None:
    """Compare RUNS: success on held-out tasks, its cost, and the cost of reaching a target.

    Runs that differ only in their seed share a column: the mean, with its 95 % interval over seeds in brackets. The
    other columns also show the difference to the first column, paired by seed. Runs may be live or finished.
    """
    from quartet.report.comparison.cautions import cautions, refuse_copies
    from quartet.report.comparison.groups import common_target, group_runs, target_note
    from quartet.report.comparison.results import read_result
    from quartet.report.comparison.table import comparison_data, comparison_table, settings_table

    results = [read_result(run) for run in runs]
    groups = group_runs(results)
    refuse_copies(groups)
    named, target = target is not None, common_target(results) if target is None else target
    if as_json:
        say(json.dumps(comparison_data(groups, target)))
        return
    from quartet.terminal.console import PrintableConsole

    console = PrintableConsole()
    for caution in cautions(groups):
        console.print(f"{caution}\n", style="bold yellow", soft_wrap=True)
    console.print(comparison_table(groups, target))
    if (settings := settings_table(groups)) is not None:
        console.print("", settings)
    console.print(f"\n{target_note(target, named=named)}", style="dim", soft_wrap=True)
