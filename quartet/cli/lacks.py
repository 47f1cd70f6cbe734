"""Notes on what this machine lacks for a run that is not started yet."""

from pathlib import Path
from typing import TYPE_CHECKING

from quartet.errors import SetupError
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.config import Recipe


def note_lacks(recipe: "Recipe", runs: Path) -> None:
    """Print the requirements of the run that this machine does not meet: a browser, vLLM, a free port."""
    from quartet.doctor import Place, examine
    from quartet.doctor.base import Grade

    for _, findings in examine(Place(runs=runs, recipe=recipe), before_training=True):
        for finding in findings:
            if finding.grade is Grade.LACKS:
                _note(finding.what, finding.advice)


def note_packages(recipe: "Recipe") -> None:
    """Print the first package of the environment that is missing."""
    from quartet.env import make_environment
    from quartet.env.extra import require_modules

    environment = make_environment(recipe.env)
    try:
        require_modules(environment.modules(), environment.extra)
    except SetupError as error:
        _note(error.what, error.advice)


def load_code(recipe: "Recipe") -> None:
    """Load the user's code of the environment as a run does. Raise `ConfigError` if it cannot be loaded, and print what
    this machine lacks for it."""
    from quartet.env import make_environment

    try:
        make_environment(recipe.env).load_code(recipe.env)
    except SetupError as error:
        _note(error.what, error.advice)


def _note(what: str, advice: str) -> None:
    say(f"note: a check of this machine failed: {what}", fg="yellow", err=True)
    say(f"  -> {advice}", fg="yellow", err=True)
