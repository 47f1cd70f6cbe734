"""Turn limits of the environment that evaluations apply and training does not."""

from typing import Any

from quartet.config import Recipe
from quartet.env import make_environment, suite_families
from quartet.errors import SetupError
from quartet.registry import find
from quartet.terminal.say import say


def note_turn_limits(recipe: Recipe) -> None:
    """Print a note if rollouts of training may take more turns than the same tasks in evaluations."""
    try:
        limited = unapplied_limit(recipe)
    except SetupError:  # a plan needs no package of the environment; a run without it ends with the package's name
        return
    if limited:
        family, limit = limited
        turns = recipe.rollout.max_turns
        say(
            f"note: evaluations apply the turn limit {limit} of the task family {family!r}, and training does not: its "
            f"limit is rollout.max_turns = {turns}, since no part of control.horizon applies limits of families",
            fg="yellow",
            err=True,
        )
        say(f'  -> add "suite" to control.horizon, or set rollout.max_turns={limit}', fg="yellow", err=True)


def unapplied_limit(recipe: Recipe) -> tuple[str, int] | None:
    """Return the family with the lowest turn limit below `rollout.max_turns`, and this limit.

    Return None if there is none, if a horizon applies it, or if the environment's sessions end episodes at it.
    """
    horizons: list[Any] = [find(one.kind, one.name) for one in recipe.control.horizon]
    environment = make_environment(recipe.env)
    if environment.judged_at_limit or any(horizon.applies_family_limits for horizon in horizons):
        return None
    limits = {family: environment.max_turns(family) for family in suite_families(recipe.env)}
    lower = [(family, limit) for family, limit in limits.items() if limit and limit < recipe.rollout.max_turns]
    return min(lower, key=lambda one: one[1], default=None)
