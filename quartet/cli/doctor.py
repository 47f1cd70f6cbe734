"""`quartet doctor`: check this machine for what a run needs, with advice."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quartet.cli.parameters import JSON, RUNS_FOLDER, SET, RecipeName
from quartet.errors import ConfigError, SetupError
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.doctor import Finding


@click.command(name="doctor")
@click.option("--recipe", type=RecipeName(), help="Recipe to check for; without it, the checks are for any run.")
@SET
@click.option("--runs", type=click.Path(path_type=Path), default=RUNS_FOLDER, show_default=True, help="Folder of runs.")
@JSON
def command(recipe: Path | None, overrides: tuple[str, ...], runs: Path, as_json: bool) -> None:
    """Check Python, packages, environment, browser, fonts, processors, memory, disk, GPU, database and ports.

    Exits with 4 if something that every run needs is missing. Changes nothing.
    """
    from msgspec import to_builtins

    from quartet.doctor import Place, examine
    from quartet.doctor.base import Grade
    from quartet.recipe.file import load_recipe

    if overrides and recipe is None:
        raise ConfigError("--set changes a recipe, and none is named", "add --recipe: a file or a name")
    place = Place(runs=runs, recipe=load_recipe(recipe, list(overrides)) if recipe else None)
    found = {}
    for name, findings in examine(place):
        found[name] = findings
        if not as_json:
            _show(name, findings)
    lacking = sum(finding.grade is Grade.LACKS for findings in found.values() for finding in findings)
    if as_json:
        say(json.dumps({"lacking": lacking, "checks": to_builtins(found)}))
    elif not lacking:
        say("\nnothing is missing")
    if lacking:
        if not as_json:
            say(f"\n{lacking} missing: see the advice after the arrows", fg="red")
        raise SystemExit(SetupError.exit_code)


def _show(name: str, findings: "list[Finding]") -> None:
    colours = {"ok": "green", "note": "yellow", "lacks": "red"}
    for finding in findings:
        say(f"{name:11}", nl=False)
        say(f"{finding.grade:6}", fg=colours[finding.grade], bold=finding.grade == "lacks", nl=False)
        say(finding.what)
        if finding.advice:
            say(f"{'':17}-> {finding.advice}")
