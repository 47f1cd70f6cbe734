"""`quartet env`: check an environment with its experts."""

import json

import click

from quartet.cli.env_play import play
from quartet.cli.group import CommandGroup
from quartet.cli.parameters import JSON, SET
from quartet.errors import ConfigError
from quartet.terminal.say import say


@click.group(name="env", cls=CommandGroup)
def command() -> None:
    """Check an environment with its experts, or act in it yourself."""


@command.command(name="check", short_help="Run the experts of an environment.")
@click.argument("name")
@click.argument("families", nargs=-1)
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Tasks of each family.")
@SET
@JSON
def check(name: str, families: tuple[str, ...], seeds: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Run the expert and an idle agent in FAMILIES (all by default) of the environment NAME.

    An expert must get a reward of 1; a wrong solution, and an agent that declares the task done at once, 0. Settings
    of the environment are given as in a recipe: --set env.sessions=2.
    """
    import asyncio

    from msgspec.structs import asdict

    from quartet.env.check import FamilyCheck, check_environment
    from quartet.recipe.file import apply_override, parse_recipe

    env: dict[str, object] = {"name": name, "families": [*families], "sessions": 2, "screenshots": False}
    given = {"name": "check", "model": {"path": "."}, "env": {**env, "step_timeout_seconds": 60.0}}
    for override in overrides:
        apply_override(given, override)
    recipe = parse_recipe(given, f"quartet env check {name}", [*overrides])

    def show(result: FamilyCheck) -> None:
        grade = "ok" if result.passed else result.summary
        say(f"{result.family} {result.seed}: {grade}", err=True)

    results = asyncio.run(check_environment(recipe.env, range(seeds), show))
    failed = [result for result in results if not result.passed]
    shares = {
        label: {"tasks": len(chosen), "passed": sum(result.passed for result in chosen)}
        for label, feasible in (("feasible", True), ("infeasible", False))
        if (chosen := [result for result in results if result.feasible is feasible])
    }
    if as_json:
        say(json.dumps({"env": name, **shares, "tasks": [asdict(result) for result in results]}))
    else:
        say("\n".join(f"{label}: {count['passed']} of {count['tasks']} tasks pass" for label, count in shares.items()))
    if failed:
        raise ConfigError(f"{len(failed)} of {len(results)} tasks of {name!r} fail", "fix their experts or evaluators")


command.add_command(play)
