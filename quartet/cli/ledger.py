"""`quartet ledger`: verify a run's ledger, bring an older one up to date, export from it, import into it."""

import json
from pathlib import Path

import click

RUN = click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group(name="ledger")
def command() -> None:
    """Verify or upgrade the ledger of a run, export from it, import into it."""


@command.command(short_help="Verify a run's ledger and blobs.")
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(run: Path, as_json: bool) -> None:
    """Read all of RUN: database, states, uses, the age of what was trained, and every blob against its checksum. Exits
    with 1 on a finding.

    Changes nothing, so it may look at a run at work.
    """
    from quartet.data.ledger import Ledger

    ledger = Ledger.open(run)
    try:
        report = ledger.check(_max_lag(run / "config.toml"))
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


def _max_lag(recipe: Path) -> int | None:
    """The bound that a run was trained with; None, and a note, when its recipe cannot be read."""
    from quartet.errors import ConfigError
    from quartet.recipe_file import load_recipe

    try:
        return load_recipe(recipe).admission.max_lag
    except ConfigError as error:
        click.secho(f"the age of what was trained is not checked: {error}", fg="yellow", err=True)
        return None


@command.command(short_help="Prove a run's promises from its receipts.")
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def audit(run: Path, as_json: bool) -> None:
    """Train all steps of RUN, which must not be at work, again, and compare; needs `runtime.receipts`.

    Exits with 1 when a promise is broken.
    """
    from quartet.errors import ConfigError
    from quartet.observe.audit import audit as audit_run
    from quartet.recipe_file import load_recipe
    from quartet.runtime.run_dir import CONFIG, RunLock

    if not load_recipe(run / CONFIG).runtime.receipts:
        raise ConfigError(f"{run} kept no receipts, so nothing can be audited", "train with runtime.receipts = true")
    with RunLock(run):
        report = audit_run(run)
    if as_json:
        click.echo(json.dumps(report.to_dict()))
    else:
        for finding in report.findings:
            click.secho(f"{finding.kind}: {finding.what}", fg="red")
        click.echo(
            f"{report.appended} rollouts appended, {report.trained} trained in {report.train_steps} train steps; "
            f"lost {report.lost}, trained twice {report.trained_twice}, tokens over the bound {report.over_lag}; "
            f"trained again: {'the same bits' if report.replay_identical else 'other weights'}"
        )
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


@command.command(short_help="Write a run's trajectories to a file.")
@RUN
@click.option("--format", "kind", required=True, help="jsonl (complete), parquet (a table), chat (for `quartet sft`).")
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@click.option("--family", "families", multiple=True, help="Only this task family; may be repeated.")
@click.option(
    "--success/--any-outcome", "successes", default=None, help="Only successes: the default of chat, and only of chat."
)
@click.option("--purpose", type=click.Choice(["train", "eval"]), default="train", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="The oldest so many.")
@click.option("--screenshots", is_flag=True, help="With screenshots (jsonl, parquet).")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, and nothing else.")
def export(
    run: Path,
    kind: str,
    output: Path,
    families: tuple[str, ...],
    successes: bool | None,
    purpose: str,
    limit: int | None,
    screenshots: bool,
    as_json: bool,
) -> None:
    """Write the trajectories of RUN, which may be at work, to one file: the last attempt of every rollout."""
    from msgspec import to_builtins

    from quartet.data.exchange.export import export as export_to
    from quartet.data.ledger import Ledger
    from quartet.data.ledger.export import Selection
    from quartet.recipe_file import load_recipe
    from quartet.types import Purpose

    selection = Selection(
        purpose=Purpose(purpose),
        families=families,
        successes_only=kind == "chat" if successes is None else successes,
        screenshots=screenshots,
    )
    ledger = Ledger.open(run)
    try:
        summary = export_to(ledger, load_recipe(run / "config.toml"), kind, output, selection, limit)
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(to_builtins(summary)))
        return
    click.echo(
        f"{summary.trajectories} trajectories, {summary.turns} turns, {summary.response_tokens} response tokens, "
        f"{summary.bytes / 1e6:.1f} MB in {output}"
    )
    if summary.damaged:
        click.secho(f"left out: {summary.damaged} that are damaged, see `quartet ledger check {run}`", fg="yellow")


@command.command(name="import", short_help="Put successes from a file into a run's success pool.")
@RUN
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, and nothing else.")
def import_(run: Path, file: Path, as_json: bool) -> None:
    """Put the successes in FILE (chats that name their task, or an export) into the success pool of RUN.

    What `replay.demonstrations` does at the start of a run, for one that has begun; it may be at work.
    """
    from msgspec import to_builtins

    from quartet.data.exchange.demonstrations import store_into
    from quartet.data.ledger import Ledger
    from quartet.recipe_file import load_recipe

    ledger = Ledger.open(run)
    try:
        summary = store_into(ledger, load_recipe(run / "config.toml"), file)
    finally:
        ledger.close()
    left_out = "".join(f", {count} left out ({reason})" for reason, count in summary.left_out.items())
    click.echo(
        json.dumps(to_builtins(summary))
        if as_json
        else f"{summary.stored} demonstrations stored, {summary.known} were there already{left_out}"
    )


@command.command(short_help="Delete blobs that nothing refers to.")
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gc(run: Path, as_json: bool) -> None:
    """Delete the blobs of RUN, which must not be at work, that no trajectory refers to.

    Crashes and disk budgets leave some; every other blob stays. The file of a SQLite ledger keeps its size: what is
    free in it is used again.
    """
    from quartet.data.ledger import Ledger
    from quartet.runtime.run_dir import RunLock

    with RunLock(run):
        ledger = Ledger.open(run)
        try:
            deleted = ledger.collect_garbage()
        finally:
            ledger.close()
    click.echo(json.dumps({"deleted": deleted}) if as_json else f"{deleted} blobs deleted")
