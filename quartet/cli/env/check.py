"""`quartet env check`: check an environment before a model does."""

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from quartet.cli.env.naming import environment_name, first_loop, require_settings
from quartet.cli.parameters import JSON, SET
from quartet.errors import QuartetError
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.env.check.run import CheckResult

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command(name="check", short_help="Check an environment before a model does.")
@click.argument("name")
@click.argument("families", nargs=-1)
@click.option("--check", "only", multiple=True, help="Run only this check of `quartet parts env_check`; repeatable.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Tasks of each family.")
@SET
@JSON
def check(
    name: str, families: tuple[str, ...], only: tuple[str, ...], seeds: int, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Check FAMILIES (all by default) of the environment NAME: a name of `quartet env list`, `module:Class`, or a
    module in the current folder.

    An expert of the environment must get a reward of 1; a wrong solution, and an agent that declares the task done at
    once, 0. Settings of the environment are given as in a recipe: --set env.sessions=2.
    """
    import asyncio

    from msgspec import to_builtins

    from quartet.env.check.run import check_environment
    from quartet.recipe.file import parse_recipe

    env = environment_name(name)
    require_settings(env, overrides)
    chosen = {"name": env, "families": [*families], "sessions": 2, "screenshots": False}
    given = {"name": "check", "model": {"path": "."}, "env": {**chosen, "step_timeout_seconds": 60.0}}
    given["rollout"] = first_loop(env)
    recipe = parse_recipe(given, f"quartet env check {name}", [*overrides])
    show = partial(_show, quiet=as_json)
    results = asyncio.run(check_environment(recipe.env, range(seeds), show, only or None))
    failed = [result.check for result in results if not result.passed]
    if as_json:
        say(json.dumps({"env": recipe.env.name, "passed": not failed, "checks": to_builtins(results)}))
    if failed:
        raise QuartetError(
            f"{len(failed)} of {len(results)} checks of {recipe.env.name!r} fail: {', '.join(failed)}",
            "each error above says what to change",
        )


def _show(result: "CheckResult", *, quiet: bool) -> None:
    """Print what a check found, in the form of a compiler's messages."""
    if quiet:
        return
    say(f"{'ok  ' if result.passed else 'FAIL'} {result.check:<12} {result.measured}".rstrip())
    for finding in result.findings:
        say(f"  {finding.grade}: ", fg=COLOURS[finding.grade], bold=True, nl=False)
        say(finding.what)
        if finding.where:
            say(f"    --> {finding.where}")
        if finding.advice:
            say(f"    help: {finding.advice}")
