"""`quartet ledger audit`: verify a run's promises."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(short_help="Verify a run's promises from its receipts.")
@RUN
@JSON
def audit(run: Path, as_json: bool) -> None:
    """Repeat all train steps of RUN and compare the weights. RUN must not be live and needs `runtime.receipts`.

    Exits with 1 if a promise is broken.
    """
    from quartet.errors import ConfigError
    from quartet.recipe.file import CONFIG, read_resolved
    from quartet.report.audit import audit as audit_run
    from quartet.run.run_dir import RunLock
    from quartet.terminal.progress import Watched

    if not read_resolved(run / CONFIG).runtime.receipts:
        raise ConfigError(f"{run} has no receipts, which an audit needs", "train with runtime.receipts = true")
    with RunLock(run), Watched("train steps trained again", quiet=as_json) as watched:
        report = audit_run(run, watched)
    if as_json:
        say(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            say(f"{finding.kind}: {finding.what}", fg="red")
        say(
            f"{report.appended} rollouts appended, {report.trained} trained in {report.train_steps} train steps; "
            f"lost {report.lost}, trained twice {report.trained_twice}, tokens over the bound {report.over_lag}; "
            f"training again gives {'bit-identical' if report.replay_identical else 'different or unknown'} weights"
        )
    if report.findings:
        raise SystemExit(1)
