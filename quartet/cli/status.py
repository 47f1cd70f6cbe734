"""`quartet status`: what a run is doing, and what it waits for."""

import json
from pathlib import Path

import click


@click.command(name="status")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(run: Path, as_json: bool) -> None:
    """Show the state of RUN: learning, speed, queues, and each module's work or wait."""
    from rich.console import Console

    from quartet.data.ledger import Ledger
    from quartet.observe.panel import panel, resting_panel
    from quartet.observe.status import StatusReader
    from quartet.runtime.run_dir import supervisor_pid

    ledger = Ledger.open(run)
    status = StatusReader(run, ledger).read()
    running = supervisor_pid(run) is not None
    ledger.close()
    status = status if running else status.at_rest()
    if as_json:
        click.echo(json.dumps(status.to_dict() | {"running": running}))
        return
    Console().print(panel(status) if running else resting_panel(status))
