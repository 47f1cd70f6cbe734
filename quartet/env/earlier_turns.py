"""Check for environments whose observations do not repeat what earlier turns showed."""

from quartet.config import Recipe
from quartet.errors import ConfigError


def require_earlier_turns(recipe: Recipe, lost: str) -> None:
    """Raise `ConfigError` if the recipe's loop or history is `latest`, whose prompts lack `lost`."""
    if recipe.rollout.loop.name == "latest":
        raise ConfigError(f"the loop latest does not show {lost}", 'set rollout.loop = "append"')
    if recipe.rollout.history.name == "latest":
        raise ConfigError(f"the history latest does not show {lost}", 'set rollout.history = "all"')
