"""Checks of a recipe that only training needs."""

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe, Reference
from quartet.env import make_environment
from quartet.errors import ConfigError, SetupError
from quartet.registry import build, find
from quartet.runtime.check.model import first_weights
from quartet.runtime.check.recipe import check_hosts, check_recipe

if TYPE_CHECKING:
    from quartet.engine.backend.base import Backend


def check_training(recipe: Recipe) -> None:
    """Run `check_recipe`, and check that the engine can load new weights and that its samples can be trained on.

    Raises `ConfigError`. These rules are not in `Recipe` itself, so that older runs that violate them can be read.
    """
    check_recipe(recipe)
    check_hosts(recipe, recipe.env.hosts)
    backend: Backend = build(recipe.engine)
    backend.check_use(trains=True)
    _check_microbatch(recipe)
    _check_ranks(recipe)
    _check_reference(recipe)
    _check_lora(recipe)
    _check_max_rollouts(recipe)
    _check_players(recipe)
    _check_forks(recipe)
    _check_guidance(recipe)
    if recipe.rollout.temperature == 0:
        raise ConfigError(
            "rollout.temperature = 0: the rollouts of a group would be equal, so there would be nothing to compare",
            "set a temperature above 0; the greedy part of an evaluation has its own temperature",
        )


def _check_microbatch(recipe: Recipe) -> None:
    """Raise `ConfigError` if the context is longer than a micro-batch, because a branch is trained as a whole."""
    context, microbatch = recipe.engine.max_context_tokens, recipe.train.max_tokens_per_microbatch
    if context > microbatch:
        raise ConfigError(
            f"engine.max_context_tokens = {context} is more than train.max_tokens_per_microbatch = {microbatch}: the "
            "longest conversations would not fit into a micro-batch of the trainer",
            f"set train.max_tokens_per_microbatch={context} or more, or lower the context; both may be changed at "
            "--resume",
        )


def _check_ranks(recipe: Recipe) -> None:
    """Raise `ConfigError` if `train.processes` is above 1 in a run that only one process can train."""
    if recipe.train.processes == 1:
        return
    if recipe.runtime.kind == "synchronous":
        raise ConfigError(
            f"train.processes = {recipe.train.processes}, but the synchronous runtime is a single process",
            'set train.processes=1, or runtime.kind="processes"',
        )
    if recipe.train.device != "cpu":
        raise ConfigError(
            f"train.processes = {recipe.train.processes} and train.device = {recipe.train.device!r}: several processes "
            "train a policy on the CPU only so far",
            "set train.processes=1, or train.device='cpu'",
        )


def _check_reference(recipe: Recipe) -> None:
    """Raise `ConfigError` if the reference shall move and no part of the recipe uses it."""
    users: list[Any] = [find(part.kind, part.name) for part in (recipe.credit, *recipe.loss.terms)]
    if recipe.reference != Reference() and not any("reference" in part.needs for part in users):
        raise ConfigError(
            "[reference] has no effect: no loss term and no credit uses the reference",
            "add a term such as 'kl' to loss.terms, or remove [reference]",
        )


def _check_max_rollouts(recipe: Recipe) -> None:
    """Raise `ConfigError` if the rollouts cannot fill a batch, so that the run would end without a train step."""
    most, size, batch = recipe.train.max_rollouts, recipe.control.rollouts_per_group, recipe.train.groups_per_batch
    if most is not None and math.ceil(most / size) < batch:
        raise ConfigError(
            f"train.max_rollouts = {most} fills no batch, which has {batch} groups of {size} rollouts",
            f"raise train.max_rollouts to at least {recipe.rollouts_per_batch}, or lower train.groups_per_batch",
        )


def _check_lora(recipe: Recipe) -> None:
    """Raise `ConfigError` if an adapter can be trained or served only with other settings, and `SetupError` if `peft`
    is missing."""
    if not recipe.lora.rank:
        return
    if find_spec("peft") is None:
        raise SetupError("lora.rank needs the package 'peft', which is not installed", "pip install 'quartet-rl[lora]'")
    if recipe.reference.train_steps_per_move:
        raise ConfigError(
            "reference.train_steps_per_move moves a copy of all weights, but with lora.rank the reference is the "
            "frozen base of the policy",
            "remove [reference], or set lora.rank=0",
        )
    if recipe.lora.publish == "merged":
        return
    backend: Backend = build(recipe.engine)
    if not backend.loads_adapters:
        raise ConfigError(
            f"lora.publish = 'adapter', but engine.name = {recipe.engine.name!r} loads whole weights",
            "set lora.publish='merged', or engine.name='torch'",
        )
    if recipe.train.publish_dtype != "float32":
        raise ConfigError(
            "train.publish_dtype has no effect with lora.publish = 'adapter', which is a few megabytes in float32",
            "remove train.publish_dtype, or set lora.publish='merged'",
        )


def _check_players(recipe: Recipe) -> None:
    """Raise `ConfigError` if a trained policy never acts in the agent loop."""
    loop, trained = recipe.rollout.loop, recipe.trained_policies
    part: Any = find(loop.kind, loop.name)
    if part.one_player and len(trained) > 1:
        raise ConfigError(
            f"in the loop {loop.name!r} only the policy {trained[0]!r} acts, so {trained[1]!r} would never be trained",
            "use a loop in which all policies act (rollout.loop=alternate), or set trained = false in "
            f"[policies.{trained[1]}]",
        )


def _check_forks(recipe: Recipe) -> None:
    """Raise `ConfigError` if the recipe forks rollouts and a child cannot reach its fork point."""
    environment, brancher, allocator = make_environment(recipe.env), recipe.rollout.brancher, recipe.control.allocator
    # An allocator forks finished rollouts, whose environments no longer have a state to store.
    can_begin = {brancher.kind: environment.snapshots or environment.deterministic}
    can_begin[allocator.kind] = environment.deterministic
    for choice in (brancher, allocator):
        part: Any = find(choice.kind, choice.name)
        if part.may_fork and not can_begin[choice.kind]:
            raise ConfigError(
                f"the {choice.kind} {choice.name!r} forks rollouts, and the environment {recipe.env.name!r} is not "
                "declared deterministic: a child repeats the actions of its parent and must get the same observations",
                "use a deterministic environment (`deterministic = True` in its class), or no forks; a brancher may "
                "also fork in an environment with snapshots (`snapshots = True`)",
            )
        if part.may_fork and len(recipe.policies) > 1:
            raise ConfigError(
                f"the {choice.kind} {choice.name!r} forks rollouts, and the run has several policies: a child repeats "
                "the calls of one policy, so the others would sample different moves",
                "use one policy, or no forks",
            )


def _check_guidance(recipe: Recipe) -> None:
    """Raise `ConfigError` if rollouts may be guided in prompts with pictures, from which guidance cannot be removed."""
    from quartet.policy.kind.find import kind_of

    allocator: Any = find(recipe.control.allocator.kind, recipe.control.allocator.name)
    if not allocator.may_guide or recipe.rollout.guidance.name == "none" or not recipe.env.screenshots:
        return
    for place, folder in first_weights(recipe).items():
        if kind_of(folder).reads_pictures:
            raise ConfigError(
                f"control.allocator = {recipe.control.allocator.name!r} guides rollouts, and the model in {folder} "
                f"({place}) reads pictures: guidance cannot be removed from prompts with pictures, so it would be "
                "trained",
                "set env.screenshots=false, or rollout.guidance='none' and control.allocator='fixed'",
            )
