"""Text of `quartet train --dry-run`: batch sizes, limits, and the first prompt of a data set."""

import json
from collections.abc import Sequence
from typing import Any

from quartet.cli.lacks import load_code
from quartet.config import Choice, Recipe
from quartet.terminal.say import say

LONGEST_MESSAGE = 400
"""Maximum number of characters of a prompt's message."""


def show_plan(recipe: Recipe, as_json: bool) -> None:
    """Print batch sizes, limits, and the first prompt of a data set. Raise the error of a run that would not start."""
    from quartet.runtime.check.training import check_training
    from quartet.runtime.plan import plan

    check_training(recipe)
    load_code(recipe)
    numbers: dict[str, Any] = plan(recipe)
    if as_json:
        if recipe.runtime.kind == "ray":
            from msgspec import to_builtins

            from quartet.runtime.placement import placement_plan

            numbers["placement"] = to_builtins(placement_plan(recipe))
        say(json.dumps(numbers))
        return
    say(_plan_text(recipe, numbers))
    _show_prompt(recipe)


def _plan_text(recipe: Recipe, numbers: dict[str, Any]) -> str:
    from quartet.report.show import counted

    train, control = recipe.train, recipe.control
    at_most = "" if control.allocator.name == "fixed" else "at most "
    fixed = f", on {counted(numbers['held_out_tasks'], 'held-out task')}" if "held_out_tasks" in numbers else ""
    return (
        f"{at_most}{counted(train.groups_per_batch, 'group')} × {counted(control.rollouts_per_group, 'rollout')} = "
        f"{counted(numbers['rollouts_per_train_step'], 'trajectory', 'trajectories')} per train step\n"
        f"{counted(numbers['optimizer_steps_per_train_step'], 'optimizer step')} per train step "
        f"({counted(train.minibatches, 'minibatch', 'minibatches')} × {counted(train.epochs, 'epoch')}), "
        f"at most {counted(train.max_tokens_per_microbatch, 'token')} per microbatch\n"
        f"staleness: fresh tokens with a lag above {counted(recipe.admission.max_lag, 'train step')} are not trained; "
        f"at most {counted(numbers['max_groups_ahead'], 'group')} = "
        f"{counted(numbers['max_rollouts_ahead'], 'rollout')} ahead of the trainer\n"
        f"schedule {recipe.admission.schedule}, stragglers {recipe.straggler.name}\n"
        f"sampler {control.sampler.name}, allocator {control.allocator.name}, horizon {_names(control.horizon)}, "
        f"filters {_names(recipe.filters) or 'none'}, replay {recipe.replay.name}\n"
        f"{counted(numbers['families'], 'task family', 'task families')}, "
        f"{counted(numbers['train_tasks'], 'training task')}, "
        f"{counted(numbers['evaluation_episodes'], 'held-out episode')} per evaluation{fixed}"
    )


def _show_prompt(recipe: Recipe) -> None:
    """Print the messages of the first training task, if they need no session; long ones are cut."""
    from quartet.env import make_environment, suite_families

    family = suite_families(recipe.env)[0]
    messages = make_environment(recipe.env).first_prompt(family)
    if messages:
        say(f"first training task of {family!r}:")
    for message in messages:
        rest = len(message.content) - LONGEST_MESSAGE
        cut = f" and {rest} more characters" if rest > 0 else ""
        say(f"  {message.role}: {message.content[:LONGEST_MESSAGE]!r}{cut}")


def _names(choices: Sequence[Choice]) -> str:
    return " + ".join(choice.name for choice in choices)
