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
    """Read all of RUN: database, states, uses, the age of what was trained, whether policies and checkpoints are on
    disk, and every blob against its checksum. Exits with 1 on a finding.

    Changes nothing, so it may look at a run at work.
    """
    from quartet.ledger import Ledger
    from quartet.terminal.progress import Watched

    with closing(Ledger.open(run)) as ledger, Watched("trajectories checked", quiet=as_json) as watched:
        report = ledger.check(*_bounds(run / "config.toml"), on_progress=watched)
    if as_json:
        say(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            say(f"{finding.kind}: {finding.what}", fg="red")
        say(f"{report.trajectories} trajectories, {report.blobs} blobs, {len(report.findings)} findings")
    if report.findings:
        raise SystemExit(1)


def _bounds(recipe: Path) -> tuple[int | None, int | None]:
    """Return a run's `admission.max_lag` and `train.train_steps_per_checkpoint`; warn when its recipe is unreadable."""
    from quartet.errors import ConfigError
    from quartet.recipe.file import read_resolved

    try:
        loaded = read_resolved(recipe)
    except ConfigError as error:
        say(f"the age of what was trained and the newest checkpoint are not checked: {error}", fg="yellow", err=True)
        return None, None
    return loaded.admission.max_lag, loaded.train.train_steps_per_checkpoint
