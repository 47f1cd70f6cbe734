"""Notes on a recipe that is accepted and may not mean what its author thinks."""

from quartet.config import Recipe
from quartet.runtime.check.held_out import note_repeated_tasks
from quartet.runtime.check.turns import note_turn_limits
from quartet.runtime.check.unused import note_unused


def print_notes(recipe: Recipe) -> None:
    """Print a note for each setting without effect, for a turn limit that only evaluations apply, and for evaluations
    that repeat held-out tasks."""
    note_unused(recipe)
    note_turn_limits(recipe)
    note_repeated_tasks(recipe)
