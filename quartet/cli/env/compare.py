"""`quartet env compare`: prove a fast port of an environment equal to its reference, or show the first difference."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from quartet.cli.env.naming import environment_name, first_loop, require_settings
from quartet.cli.parameters import JSON, SET, Amount
from quartet.errors import ConfigError, QuartetError
from quartet.terminal.say import say

SIDES = ("reference", "port")
SECTION = re.compile(r"(?<![\w.])env(?=[.:])")
"""Section of a recipe at the beginning of the name of a setting, in the words of an error."""


@click.command(name="compare", short_help="Compare a fast port of an environment with its reference.")
@click.argument("reference")
@click.argument("port")
@click.argument("families", nargs=-1)
@click.option("--seeds", type=click.IntRange(min=1), default=8, show_default=True, help="Tasks of each family.")
@click.option("--rollouts", type=click.IntRange(min=1), default=100, show_default=True, help="Random episodes in all.")
@click.option(
    "--tolerance",
    type=Amount(min=0),
    default=0.0,
    show_default=True,
    help="Difference of numbers, also in texts, that counts as none: absolute, or relative to the larger number.",
)
@SET
@JSON
def compare(
    reference: str,
    port: str,
    families: tuple[str, ...],
    seeds: int,
    rollouts: int,
    tolerance: float,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Play FAMILIES of the environment PORT (all by default) and of REFERENCE with equal actions. Compare all that a
    policy reads, rewards and ends of episodes. Each name is one of `quartet env list`, `module:Class`, or a module in
    the current folder.

    Settings begin with the side: --set port.sessions=2 or --set 'reference.ids=["minigrid:MiniGrid-Empty-5x5-v0"]'.
    """
    import asyncio

    from msgspec import to_builtins

    from quartet.env import suite_families
    from quartet.env.port.speed import ROUNDS, steps_per_second
    from quartet.env.port.verify import Verification
    from quartet.recipe.file import apply_override, parse_recipe

    given: dict[str, Any] = {
        "reference": {"name": environment_name(reference)},
        "port": {"name": environment_name(port), "families": [*families]},
    }
    for override in overrides:
        if not override.startswith(tuple(f"{side}." for side in SIDES)):
            raise ConfigError(f"--set {override} names no side", "begin a setting with `reference.` or `port.`")
        apply_override(given, override)
    for side in SIDES:
        require_settings(given[side]["name"], overrides, side)
    parsed = {}
    for side in SIDES:
        env = given[side]
        recipe = {"name": "compare", "model": {"path": "."}, "env": env, "rollout": first_loop(env["name"])}
        own = [f"env{one.removeprefix(side)}" for one in overrides if one.startswith(f"{side}.")]
        with _settings_of(side):
            parsed[side] = parse_recipe(recipe, f"{side} of env compare", own).env
            suite_families(parsed[side])  # reads the data of an environment that has some
    slow, fast = parsed.values()
    verified = asyncio.run(Verification(slow, fast, range(seeds), rollouts, tolerance).run())
    if verified.difference:
        if as_json:
            say(json.dumps({"equal": False, **to_builtins(verified)}))
        raise QuartetError(
            f"{verified.level} of {verified.task or 'the classes'}: {verified.difference}",
            f"reproduce it with the responses {verified.responses}" if verified.responses else "change the port",
        )
    speed = asyncio.run(steps_per_second(slow, fast, range(seeds)))
    if as_json:
        say(json.dumps({"equal": True, **to_builtins(verified), **to_builtins(speed)}))
        return
    shown = "" if speed.shows_difference else "; no difference is shown"
    say(
        f"equal: {verified.resets} resets, {verified.interactions} single actions, {verified.rollouts} rollouts of "
        f"{verified.turns} turns, {verified.rewarded} of them rewarded\n"
        f"speed: {speed.reference_steps_per_second:,.0f} steps/s in the reference, {speed.port_steps_per_second:,.0f} "
        f"in the port ({speed.ratio:.2f} times as fast, {speed.ratio_low:.2f} to {speed.ratio_high:.2f} in "
        f"{ROUNDS} rounds{shown})"
    )


@contextmanager
def _settings_of(side: str) -> Iterator[None]:
    """Name the settings in an error by their side, as the command's options do: `port.data` in place of `env.data`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(SECTION.sub(side, error.what), SECTION.sub(side, error.advice)) from error
