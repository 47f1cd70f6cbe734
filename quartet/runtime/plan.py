"""What a recipe implies, computed without loading anything heavy."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe
from quartet.env import make_environment, suite_families
from quartet.errors import ConfigError
from quartet.registry import build, find
from quartet.shipped import shipped_policies

if TYPE_CHECKING:
    from quartet.engine.backend.base import Backend
    from quartet.manager.straggler.base import StragglerRule


def check_recipe(recipe: Recipe) -> None:
    """Look up the task families, the sinks and the files that the recipe names. Raises `ConfigError`."""
    from quartet.report.sinks.base import check_package

    suite_families(recipe.env)
    for sink in recipe.observe.sinks:
        check_package(sink.name)
    for place, folder in _first_weights(recipe).items():
        check_model_folder(folder, place)
        _check_positions(recipe, folder, place)
    _backend(recipe).check_use(trains=False)
    _check_demonstrations(recipe)
    if recipe.evaluation.control and not Path(recipe.sft.data).is_file():
        raise ConfigError(
            f"evaluation.control needs demonstrations: there is no file sft.data = {recipe.sft.data!r}",
            "name a chat-format JSONL file, or set evaluation.control=false",
        )


def check_training(recipe: Recipe) -> None:
    """Check what `check_recipe` does, that the engine takes new weights, and that what it samples can be trained on.

    Raises `ConfigError`. These are no rules of `Recipe` itself: a run that began without them can still be read.
    """
    check_recipe(recipe)
    _backend(recipe).check_use(trains=True)
    _check_microbatch(recipe)
    _check_players(recipe)
    _check_forks(recipe)
    if recipe.rollout.temperature == 0:
        raise ConfigError(
            "rollout.temperature = 0: the rollouts of a group would be alike, so there is nothing to compare",
            "set a temperature above 0; the greedy part of an evaluation has its own",
        )


def _check_microbatch(recipe: Recipe) -> None:
    """Refuse a context that is longer than a microbatch: a branch is trained whole."""
    context, microbatch = recipe.engine.max_context_tokens, recipe.train.max_tokens_per_microbatch
    if context > microbatch:
        raise ConfigError(
            f"engine.max_context_tokens = {context} is more than train.max_tokens_per_microbatch = {microbatch}: the "
            "longest conversations would not fit into a microbatch of the trainer",
            f"set train.max_tokens_per_microbatch={context} or more, or lower the context; both may change at --resume",
        )


def _check_players(recipe: Recipe) -> None:
    """Refuse a loop in which a policy that is to be trained never plays."""
    loop, trained = recipe.rollout.loop, recipe.trained_policies
    part: Any = find(loop.kind, loop.name)
    if part.one_player and len(trained) > 1:
        raise ConfigError(
            f"the loop {loop.name!r} plays the policy {trained[0]!r} alone, so {trained[1]!r} would never be trained",
            "take a loop in which all of them play (rollout.loop=alternate), or set trained = false in "
            f"[policies.{trained[1]}]",
        )


def _check_forks(recipe: Recipe) -> None:
    """Refuse forks where a child cannot come to the place in its parent's episode at which it begins."""
    brancher, allocator = recipe.rollout.brancher, recipe.control.allocator
    forking = [f"rollout.brancher {brancher.name!r}"] if brancher.name != "none" else []
    allocators: Any = find(allocator.kind, allocator.name)
    forking += [f"control.allocator {allocator.name!r}"] if allocators.forks else []
    if forking and not make_environment(recipe.env).deterministic:
        raise ConfigError(
            f"{forking[0]} forks rollouts, and the environment {recipe.env.name!r} is not declared deterministic: a "
            "child repeats the actions of its parent and must be shown the same",
            "take an environment that is (`deterministic = True` in its class), or no forks",
        )
    if forking and len(recipe.policies) > 1:
        raise ConfigError(
            f"{forking[0]} forks rollouts, and the run has several policies: a child repeats the calls of one, so "
            "the others would sample their moves anew",
            "train one policy, or take no forks",
        )


def _backend(recipe: Recipe) -> "Backend":
    return build(recipe.engine)


def _check_demonstrations(recipe: Recipe) -> None:
    file = recipe.replay.demonstrations
    if file and recipe.replay.name == "none":
        raise ConfigError("replay.demonstrations needs a pool: replay.name is 'none'", 'set replay.name="success_pool"')
    if file and not Path(file).is_file():
        raise ConfigError(f"there is no file replay.demonstrations = {file!r}", "name a file of successes, or none")


def _first_weights(recipe: Recipe) -> dict[str, Path]:
    """Return the folders of the policies' first weights by the setting that names them."""
    folders = {f"policies.{name}.source": Path(one.source) for name, one in recipe.policies.items() if one.source}
    needs_model = not recipe.policies or len(folders) < len(recipe.policies)
    return folders | ({"model.path": Path(recipe.model.path)} if needs_model else {})


def check_model_folder(path: Path, place: str = "model.path") -> None:
    """A folder in Hugging Face format has at least a config.json. Raises `ConfigError`."""
    if not (path / "config.json").is_file():
        raise ConfigError(
            f"{place}: no model at {path} (there is no {path.resolve() / 'config.json'})",
            f"give the name of a policy that ships ({', '.join(shipped_policies())}), or the folder of a causal "
            "language model in Hugging Face format; a relative one begins at the recipe's folder, with --set at the "
            "current one. A model of the Hugging Face Hub is downloaded first: "
            "`hf download NAME --local-dir FOLDER`",
        )


def _check_positions(recipe: Recipe, folder: Path, place: str) -> None:
    """Refuse a context that is longer than what the model was made for."""
    positions = model_positions(folder)
    if positions is not None and recipe.engine.max_context_tokens > positions:
        raise ConfigError(
            f"engine.max_context_tokens = {recipe.engine.max_context_tokens} is more than the model's {positions} "
            f"positions (max_position_embeddings in {folder}/config.json, {place})",
            f"set engine.max_context_tokens={positions} or less, or take a model that reads more",
        )


def model_positions(folder: Path) -> int | None:
    """Return how many tokens the model in `folder` can read; None where its config.json does not say.

    Raises `ConfigError` for a file that is no JSON object.
    """
    file = folder / "config.json"
    try:
        described = json.loads(file.read_text())
        text_model = described.get("text_config") or described  # of models that read pictures, too
        positions = text_model.get("max_position_embeddings")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "copy the model again from its source") from error
    return positions if isinstance(positions, int) else None


def plan(recipe: Recipe) -> dict[str, int]:
    """The batch arithmetic as numbers."""
    families = len(suite_families(recipe.env))
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
        "families": families,
        "train_tasks": families * recipe.control.train_seeds_per_family,
        "evaluation_episodes": families * recipe.evaluation.episodes_per_family,
    }
