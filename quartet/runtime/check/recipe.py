"""Checks of a recipe that any use of it needs: a run, an evaluation, a plan."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from quartet.config import Recipe
from quartet.env import make_environment, suite_families
from quartet.errors import ConfigError, SetupError
from quartet.registry import build
from quartet.runtime.check.model import check_models

if TYPE_CHECKING:
    from quartet.engine.backend.base import Backend


def check_recipe(recipe: Recipe) -> None:
    """Check the task families, sinks and files that the recipe names. Raises `ConfigError`."""
    from quartet.report.sinks.base import check_package

    _check_turns(recipe)
    for sink in recipe.observe.sinks:
        check_package(sink.name)
    check_models(recipe)
    backend: Backend = build(recipe.engine)
    backend.check_use(trains=False)
    _check_demonstrations(recipe)
    if recipe.evaluation.supervised_control and not Path(recipe.sft.data).is_file():
        raise ConfigError(
            f"evaluation.supervised_control needs demonstrations: no file sft.data = {recipe.sft.data!r}",
            "name a chat-format JSONL file, or set evaluation.supervised_control=false",
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


def _check_demonstrations(recipe: Recipe) -> None:
    file = recipe.replay.demonstrations
    if file and recipe.replay.name == "none":
        raise ConfigError("replay.demonstrations needs a pool: replay.name is 'none'", 'set replay.name="success_pool"')
    if file and not Path(file).is_file():
        raise ConfigError(
            f"the file replay.demonstrations = {file!r} does not exist",
            "correct the path, or leave replay.demonstrations empty",
        )


def check_hosts(recipe: Recipe, hosts: int) -> None:
    """Raise `ConfigError` if several environment hosts would use the same machines."""
    if hosts > 1 and make_environment(recipe.env).one_host:
        raise ConfigError(
            f"the environment {recipe.env.name!r} uses machines that the recipe names, and two environment hosts would "
            "use the same ones",
            "use one environment host with more sessions",
        )


def check_ray(recipe: Recipe) -> None:
    """Raise `SetupError` if the run is placed by Ray, which is not installed. A plan and manifests need no Ray."""
    if recipe.runtime.kind == "ray" and find_spec("ray") is None:
        raise SetupError(
            "runtime.kind = 'ray' needs the package 'ray', which is not installed", "pip install 'quartet-rl[ray]'"
        )
