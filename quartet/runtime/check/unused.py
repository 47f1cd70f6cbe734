"""Settings that have no effect beside the recipe's other settings.

They are noted and not refused, so that one `--set` switches a part off, and older runs can be resumed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from quartet.config import Recipe, Train
from quartet.policy.kind.find import kind_of
from quartet.registry import find
from quartet.runtime.check.model import first_weights
from quartet.terminal.say import say


class Unused(NamedTuple):
    """A setting without effect."""

    setting: str
    reason: str
    advice: str


def note_unused(recipe: Recipe) -> None:
    """Print the settings without effect of a recipe that `check_training` accepts."""
    for one in unused_settings(recipe):
        say(f"note: {one.setting} has no effect: {one.reason}", fg="yellow", err=True)
        say(f"  -> {one.advice}, or remove {one.setting}", fg="yellow", err=True)


def unused_settings(recipe: Recipe) -> Iterator[Unused]:
    """Yield the settings that differ from their defaults and that no part of the run reads."""
    train, replays = recipe.train, recipe.replay.name != "none"
    allocator: Any = find(recipe.control.allocator.kind, recipe.control.allocator.name)
    if recipe.rollout.guidance.name != "none" and not allocator.may_guide:
        reason = f"the allocator {recipe.control.allocator.name!r} guides no rollouts"
        yield Unused("rollout.guidance", reason, "set control.allocator='guided'")
    if train.overlong_cache_tokens != Train().overlong_cache_tokens and train.overlong_max_tokens is None:
        reason = "without train.overlong_max_tokens there is no penalty"
        yield Unused("train.overlong_cache_tokens", reason, "set train.overlong_max_tokens")
    if train.exempt_replayed_turns and not (replays and train.min_turn_entropy_percentile):
        lacking = "train.min_turn_entropy_percentile" if replays else "replay"
        yield Unused("train.exempt_replayed_turns", f"the recipe has no {lacking}", f"set {lacking}")
    if recipe.loss.replay_share is not None and not replays:
        yield Unused("loss.replay_share", "the recipe has no replay", "set replay")
    if recipe.evaluation.blind and not _shows_pictures(recipe):
        reason = "the policy reads no pictures, so its prompts would be those of the greedy evaluation"
        yield Unused("evaluation.blind", reason, "use a model that reads pictures with env.screenshots=true")


def _shows_pictures(recipe: Recipe) -> bool:
    """Return whether prompts may have pictures."""
    return recipe.env.screenshots and any(kind_of(folder).reads_pictures for folder in first_weights(recipe).values())
