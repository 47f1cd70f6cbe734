"""`quartet ledger`: verify a run's ledger, bring an older one up to date."""

import json
from pathlib import Path

import click

RUN = click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group(name="ledger")
def command() -> None:
    """Verify or upgrade the ledger of a run."""


@command.command(short_help="Verify a run's ledger and blobs.")
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(run: Path, as_json: bool) -> None:
    """Read all of RUN: database, states, uses, and every blob against its checksum. Exits with 1 on a finding.

    Changes nothing, so it may look at a run at work.
    """
    from quartet.data.ledger import Ledger

    ledger = Ledger.open(run)
    try:
        report = ledger.check()
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            click.secho(f"{finding.kind}: {finding.what}", fg="red")
        click.echo(f"{report.trajectories} trajectories, {report.blobs} blobs, {len(report.findings)} findings")
    if report.findings:
        raise SystemExit(1)


@command.command(short_help="Bring an older ledger up to date.")
@RUN
def upgrade(run: Path) -> None:
    """Bring the ledger of RUN, which must not be at work, to the schema of this Quartet.

    There is no way back: an older Quartet will refuse the run.
    """
    from quartet.data.database import find_database
    from quartet.data.ledger import Ledger
    from quartet.data.schema import SCHEMA_VERSION
    from quartet.runtime.run_dir import RunLock

    find_database(run).check()
    with RunLock(run):
        Ledger.open(run, upgrade=True).close()
    click.echo(f"{run} has schema version {SCHEMA_VERSION}")
