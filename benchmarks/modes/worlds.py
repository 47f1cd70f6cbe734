"""What the policy acts on in the compared runs: settings of the policy, the environment and the length of responses."""

from pathlib import Path
from typing import Any

from benchmarks.desk import ENVIRONMENT
from benchmarks.modes.start import ACTING, REASONING
from quartet.recipe.file import load_recipe

MAX_TURNS = 20

Overrides = dict[str, dict[str, Any]]
"""Section -> setting -> value."""


def pretended(policy: Path, workload: Path) -> Overrides:
    """Return the settings of the simulated desktop, whose latencies are those of a workload file."""
    return {
        "model": {"path": str(policy)},
        "env": {"name": ENVIRONMENT, "workload": str(workload)},
        "rollout": {"max_turns": MAX_TURNS, "max_tokens": ACTING.max_tokens},
        "engine": {"max_slots": 128, "max_context_tokens": 1024},
    }


def single_turn(policy: Path, workload: Path) -> Overrides:
    """Return the settings of APRIL's workload: one long response per rollout."""
    world = pretended(policy, workload)
    world["rollout"] = {"max_turns": 1, "max_tokens": REASONING.max_tokens}
    world["engine"] |= {"max_context_tokens": 2 * REASONING.max_tokens}
    return world


def desktops() -> Overrides:
    """Return the settings of real desktops: those of `recipes/desktop`, with its initial policy."""
    recipe = load_recipe(Path("desktop"))
    return {
        "model": {"path": recipe.model.path},
        "env": recipe.env.model_dump(),
        "rollout": {"max_turns": recipe.rollout.max_turns, "max_tokens": recipe.rollout.max_tokens},
        "engine": {"max_slots": 32, "max_context_tokens": recipe.engine.max_context_tokens},
    }
