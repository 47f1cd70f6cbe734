"""`quartet ledger check`: verify a run's ledger and blobs."""

import json
from contextlib import closing
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN


@click.command(short_help="Verify a run's ledger and blobs.")
@RUN
@JSON
def check(run: Path, as_json: bool) -> None:
    """Read all of RUN: database, states, uses, the age of what was trained, and every blob against its checksum. Exits
    with 1 on a finding.

    Changes nothing, so it may look at a run at work.
    """
    from quartet.data.ledger import Ledger
    from quartet.observe.progress import Watched

    with closing(Ledger.open(run)) as ledger, Watched("trajectories checked", quiet=as_json) as watched:
        report = ledger.check(_max_lag(run / "config.toml"), watched)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            click.secho(f"{finding.kind}: {finding.what}", fg="red")
        click.echo(f"{report.trajectories} trajectories, {report.blobs} blobs, {len(report.findings)} findings")
    if report.findings:
        raise SystemExit(1)


def _max_lag(recipe: Path) -> int | None:
    """The bound that a run was trained with; None, and a note, when its recipe cannot be read."""
    from quartet.errors import ConfigError
    from quartet.recipe_file import load_recipe

    try:
        return load_recipe(recipe).admission.max_lag
    except ConfigError as error:
        click.secho(f"the age of what was trained is not checked: {error}", fg="yellow", err=True)
        return None
