"""Evaluations of more episodes than the environment has held-out tasks."""

from collections.abc import Iterator

from quartet.config import Recipe
from quartet.env import held_out_tasks, suite_families
from quartet.report.show import counted
from quartet.terminal.say import say


def note_repeated_tasks(recipe: Recipe) -> None:
    """Print a note for each setting with which an evaluation plays a held-out task more than once."""
    for setting, episodes, family, tasks in repeated_tasks(recipe):
        say(
            f"note: {setting} = {episodes}, but the family {family!r} has {counted(tasks, 'held-out task')}: "
            "an evaluation repeats them, and its interval is too narrow",
            fg="yellow",
            err=True,
        )
        say(f"  -> set {setting}={tasks}, or hold out more tasks", fg="yellow", err=True)


def repeated_tasks(recipe: Recipe) -> Iterator[tuple[str, int, str, int]]:
    """Yield (setting, episodes, family, held-out tasks) of such settings, with the family that has fewest tasks."""
    numbers = held_out_tasks(recipe.env, suite_families(recipe.env))
    fixed = {family: number for family, number in numbers.items() if number}  # without any, an evaluation is an error
    if not fixed:
        return
    family, tasks = min(fixed.items(), key=lambda one: one[1])
    evaluation = recipe.evaluation
    settings = {
        "evaluation.episodes_per_family": (evaluation.before_and_after, evaluation.episodes_per_family),
        "evaluation.episodes_per_family_during": (
            evaluation.train_steps_per_evaluation > 0,
            evaluation.episodes_per_family_during,
        ),
    }
    for setting, (evaluates, episodes) in settings.items():
        if evaluates and episodes > tasks:
            yield setting, episodes, family, tasks
