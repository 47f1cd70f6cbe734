"""Loading of the policy from which a trainer continues."""

from collections.abc import Callable
from pathlib import Path

from quartet.config import Recipe
from quartet.on_progress import no_progress
from quartet.policy.files import check_policy
from quartet.policy.frozen_tower import freeze_tower
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.lora import add_adapter


def load_starting_policy(
    recipe: Recipe, policy: str, folder: Path, *, on_progress: Callable[[], None] = no_progress
) -> LoadedPolicy:
    """Load the policy named `policy` from `folder`, one of its versions, to train it further.

    With `lora.rank`, load the initial weights and add a new adapter instead: a checkpoint holds the factors of later
    versions. With `model.freeze_vision`, the vision tower is not trained. Raises `CheckpointError` like `load_policy`,
    also for damage in `folder`.
    """
    remote_code, lora = recipe.model.trust_remote_code, recipe.lora
    if not lora.rank:
        loaded = load_policy(folder, trust_remote_code=remote_code, on_progress=on_progress)
        _freeze(loaded, recipe)
        return loaded
    check_policy(folder, on_progress=on_progress)
    base = recipe.policy_sources[policy].source
    loaded = load_policy(base, trust_remote_code=remote_code, on_progress=on_progress)
    add_adapter(loaded.model, lora, base, recipe.seed, without=_freeze(loaded, recipe))
    return loaded


def _freeze(policy: LoadedPolicy, recipe: Recipe) -> str | None:
    """Freeze the vision tower if the recipe asks for it; return the pattern of the names of its layers, else None."""
    return freeze_tower(policy.model) if recipe.model.freeze_vision else None
