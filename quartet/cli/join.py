"""`quartet join`: add an engine, an environment host or a worker to an active run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quartet.cli.parameters import RUN

if TYPE_CHECKING:
    from quartet.runtime.join import Role


@click.command(name="join")
@RUN
@click.option("--as", "role", type=click.Choice(["engine", "env", "worker"]), required=True, help="What to add.")
def command(run: Path, role: "Role") -> None:
    """Run one more module of the active RUN on this machine, until Ctrl-C or the end of the run.

    The machine must share the folder of the run; on another machine the ledger must be PostgreSQL.
    """
    from quartet.runtime.join import join_run

    sys.exit(join_run(run, role))
