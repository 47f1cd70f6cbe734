"""`quartet report`: write a page and figures about runs."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUNS, Amount
from quartet.terminal.say import say


@click.command(name="report")
@RUNS
@click.option("--output", "-o", type=click.Path(path_type=Path, file_okay=False), default="report", show_default=True)
@click.option("--target", type=Amount(0, 1), metavar="SHARE", help="As in `quartet compare`.")
@JSON
def command(runs: tuple[Path, ...], output: Path, target: float | None, as_json: bool) -> None:
    """Write OUTPUT/report.html, one self-contained file about RUNS, and its figures as PNG (300 dpi).

    Runs may be live or finished; their folders are not changed.
    """
    from quartet.files.disk import usable_output
    from quartet.report.paper.page import write_report
    from quartet.report.paper.reported_run import read_run
    from quartet.terminal.progress import Watched

    read = [read_run(run) for run in runs]
    with Watched("figures", quiet=as_json) as watched, usable_output(output):
        files = write_report(read, output, target, watched)
    if as_json:
        say(json.dumps({"files": [str(file) for file in files]}))
        return
    say("\n".join(f"wrote {file}" for file in files))
