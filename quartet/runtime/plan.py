"""Batch sizes and limits that follow from a recipe."""

from typing import TYPE_CHECKING

from quartet.config import Recipe
from quartet.env import held_out_tasks, suite_families, train_tasks
from quartet.registry import build

if TYPE_CHECKING:
    from quartet.manager.straggler.base import StragglerRule


def plan(recipe: Recipe) -> dict[str, int]:
    """Return the batch sizes and limits that follow from the recipe; the number of held-out tasks only if it is
    fixed."""
    families = suite_families(recipe.env)
    tasks = train_tasks(recipe.env, families)
    held_out = held_out_tasks(recipe.env, families)
    stragglers: StragglerRule = build(recipe.straggler, recipe)
    max_groups_ahead = stragglers.groups_ahead(recipe.max_groups_ahead)
    return {
        "groups_per_train_step": recipe.train.groups_per_batch,
        "rollouts_per_group": recipe.control.rollouts_per_group,
        "rollouts_per_train_step": recipe.rollouts_per_batch,
        "optimizer_steps_per_train_step": recipe.train.minibatches * recipe.train.epochs,
        "max_tokens_per_microbatch": recipe.train.max_tokens_per_microbatch,
        "max_lag": recipe.admission.max_lag,
        "max_groups_ahead": max_groups_ahead,
        "max_rollouts_ahead": max_groups_ahead * stragglers.quorum(recipe.control.rollouts_per_group).queued,
        "families": len(families),
        "train_tasks": sum(tasks.get(family, recipe.control.train_seeds_per_family) for family in families),
        "evaluation_episodes": len(families) * recipe.evaluation.episodes_per_family,
    } | ({"held_out_tasks": sum(held_out.values())} if len(held_out) == len(families) else {})
