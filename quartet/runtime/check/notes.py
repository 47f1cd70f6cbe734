"""Notes on a recipe that is accepted and may not mean what its author thinks."""

from quartet.config import Recipe
from quartet.runtime.check.turns import note_turn_limits
from quartet.runtime.check.unused import note_unused


def print_notes(recipe: Recipe) -> None:
    """Print a note for each setting without effect, and for a turn limit that only evaluations apply."""
    note_unused(recipe)
    note_turn_limits(recipe)
