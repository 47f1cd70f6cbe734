"""`quartet ledger check`: verify a run's ledger and blobs."""

import json
from contextlib import closing
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(short_help="Verify a run's ledger and blobs.")
@RUN
@JSON
def check(run: Path, as_json: bool) -> None:
    """Verify the database of RUN, its states, the batches that used each rollout, the lag of trained tokens, policies
    and checkpoints on disk, and all blobs. Exits with 1 on a finding.

    Changes nothing, so RUN may be live.
    """
    from quartet.ledger import Ledger
    from quartet.report.check import check_ledger
    from quartet.terminal.progress import Watched

    with closing(Ledger.open(run)) as ledger, Watched("trajectories checked", quiet=as_json) as watched:
        report = check_ledger(ledger, _max_lag(run / "config.toml"), on_progress=watched)
    if as_json:
        say(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            say(f"{finding.kind}: {finding.what}", fg="red")
        say(f"{report.trajectories} trajectories, {report.blobs} blobs, {len(report.findings)} findings")
    if report.findings:
        raise SystemExit(1)


def _max_lag(recipe: Path) -> int | None:
    """Return `admission.max_lag`; warn if the run's recipe is unreadable."""
    from quartet.errors import ConfigError
    from quartet.recipe.file import read_resolved

    try:
        return read_resolved(recipe).admission.max_lag
    except ConfigError as error:
        say(f"lag is not checked: {error}", fg="yellow", err=True)
        return None
