"""Check a recipe, and compute the batch sizes that follow from it, without heavy imports."""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe, Reference
from quartet.env import make_environment, suite_families, train_tasks
from quartet.errors import ConfigError, SetupError
from quartet.policy.download import DOWNLOADS
from quartet.registry import build, find
from quartet.shipped import named_policies

if TYPE_CHECKING:
    from quartet.engine.backend.base import Backend
    from quartet.manager.straggler.base import StragglerRule


def check_recipe(recipe: Recipe) -> None:
    """Check the task families, sinks and files that the recipe names. Raises `ConfigError`."""
    from quartet.report.sinks.base import check_package

    _check_turns(recipe)
    for sink in recipe.observe.sinks:
        check_package(sink.name)
    for place, folder in _first_weights(recipe).items():
        check_model_folder(folder, place)
        _check_positions(recipe, folder, place)
        _check_pictures(recipe, folder, place)
    _backend(recipe).check_use(trains=False)
    _check_demonstrations(recipe)
    if recipe.evaluation.supervised_control and not Path(recipe.sft.data).is_file():
        raise ConfigError(
            f"evaluation.supervised_control needs demonstrations: no file sft.data = {recipe.sft.data!r}",
            "name a chat-format JSONL file, or set evaluation.supervised_control=false",
        )


def check_training(recipe: Recipe) -> None:
    """Run `check_recipe`, and check that the engine can load new weights and that its samples can be trained on.

    Raises `ConfigError`. These rules are not in `Recipe` itself, so that older runs that violate them can be read.
    """
    check_recipe(recipe)
    check_hosts(recipe, recipe.env.hosts)
    _backend(recipe).check_use(trains=True)
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


def _check_turns(recipe: Recipe) -> None:
    """Raise `ConfigError` for an unknown task family, and for one whose episodes would end before they are judged."""
    environment, given = make_environment(recipe.env), recipe.rollout.max_turns
    families = suite_families(recipe.env)
    if not environment.judged_at_limit:
        return
    limits = {family: environment.max_turns(family) or given for family in families}
    family, limit = max(limits.items(), key=lambda item: item[1])
    if limit > given:
        raise ConfigError(
            f"rollout.max_turns = {given} ends an episode before the {limit} turns of the task family {family!r}, at "
            "which it would be judged: it would get a reward of 0, whatever the policy did",
            f"set rollout.max_turns={limit} or more, lower the limit in the environment's settings, or choose other "
            "env.families",
        )


def check_hosts(recipe: Recipe, hosts: int) -> None:
    """Raise `ConfigError` if several environment hosts would use the same machines."""
    if hosts > 1 and make_environment(recipe.env).one_host:
        raise ConfigError(
            f"the environment {recipe.env.name!r} uses machines that the recipe names, and two environment hosts would "
            "use the same ones",
            "use one environment host with more sessions",
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


def check_ray(recipe: Recipe) -> None:
    """Raise `SetupError` if the run is placed by Ray, which is not installed. A plan and manifests need no Ray."""
    if recipe.runtime.kind == "ray" and find_spec("ray") is None:
        raise SetupError(
            "runtime.kind = 'ray' needs the package 'ray', which is not installed", "pip install 'quartet-rl[ray]'"
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
    if not _backend(recipe).loads_adapters:
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
    for place, folder in _first_weights(recipe).items():
        if kind_of(folder).reads_pictures:
            raise ConfigError(
                f"control.allocator = {recipe.control.allocator.name!r} guides rollouts, and the model in {folder} "
                f"({place}) reads pictures: guidance cannot be removed from prompts with pictures, so it would be "
                "trained",
                "set env.screenshots=false, or rollout.guidance='none' and control.allocator='fixed'",
            )


def _backend(recipe: Recipe) -> "Backend":
    return build(recipe.engine)


def _check_demonstrations(recipe: Recipe) -> None:
    file = recipe.replay.demonstrations
    if file and recipe.replay.name == "none":
        raise ConfigError("replay.demonstrations needs a pool: replay.name is 'none'", 'set replay.name="success_pool"')
    if file and not Path(file).is_file():
        raise ConfigError(
            f"the file replay.demonstrations = {file!r} does not exist",
            "correct the path, or leave replay.demonstrations empty",
        )


def _first_weights(recipe: Recipe) -> dict[str, Path]:
    """Return the folder of each policy's initial weights, by the setting that names the folder."""
    folders = {f"policies.{name}.source": Path(one.source) for name, one in recipe.policies.items() if one.source}
    needs_model = not recipe.policies or len(folders) < len(recipe.policies)
    return folders | ({"model.path": Path(recipe.model.path)} if needs_model else {})


def check_model_folder(path: Path, place: str = "model.path") -> None:
    """Raise `ConfigError` if a folder has no config.json, which every model in Hugging Face format has. The advice for
    a model that `quartet model get` knows is this command."""
    if not (path / "config.json").is_file():
        if path.name in DOWNLOADS:
            raise ConfigError(f"{place}: {path.name} is not downloaded yet", f"quartet model get {path.name}")
        raise ConfigError(
            f"{place}: no model at {path} (there is no {path.resolve() / 'config.json'})",
            f"give the name of a policy ({', '.join(named_policies())}), or the folder of a causal language model in "
            "Hugging Face format; a relative path is resolved against the recipe's folder, with --set against the "
            f"current folder. Download a model first: `quartet model get {min(DOWNLOADS)}`, or one of the Hugging Face "
            "Hub: `hf download NAME --local-dir FOLDER`",
        )


def _check_positions(recipe: Recipe, folder: Path, place: str) -> None:
    """Raise `ConfigError` if the context is longer than the model supports."""
    positions = model_positions(folder)
    if positions is not None and recipe.engine.max_context_tokens > positions:
        raise ConfigError(
            f"engine.max_context_tokens = {recipe.engine.max_context_tokens} is more than the model's {positions} "
            f"positions (max_position_embeddings in {folder}/config.json, {place})",
            f"set engine.max_context_tokens={positions} or less, or use a model with more positions",
        )


def _check_pictures(recipe: Recipe, folder: Path, place: str) -> None:
    """Raise `ConfigError` if the engine cannot show pictures to a model that reads them, or if a vision tower shall be
    frozen and the model has none."""
    from quartet.policy.kind.find import kind_of

    reads_pictures = kind_of(folder).reads_pictures
    if recipe.model.freeze_vision and not reads_pictures:
        raise ConfigError(
            f"model.freeze_vision is set, but the model in {folder} ({place}) has no vision tower",
            "remove model.freeze_vision",
        )
    if reads_pictures and not _backend(recipe).reads_pictures:
        raise ConfigError(
            f"the model in {folder} ({place}) reads pictures, but engine.name = {recipe.engine.name!r} cannot show any",
            "set engine.name='torch', 'transformers' or 'vllm'",
        )


def model_positions(folder: Path) -> int | None:
    """Return the maximum number of tokens of the model in `folder`; None if its config.json does not state it.

    Raises `ConfigError` if that file is not a JSON object.
    """
    file = folder / "config.json"
    try:
        described = json.loads(file.read_text())
        text_model = described.get("text_config") or described  # vision-language models nest it
        positions = text_model.get("max_position_embeddings")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "copy the model again from its source") from error
    return positions if isinstance(positions, int) else None


def plan(recipe: Recipe) -> dict[str, int]:
    """Return the batch sizes and limits that follow from the recipe."""
    families = suite_families(recipe.env)
    tasks = train_tasks(recipe.env, families)
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
    }
