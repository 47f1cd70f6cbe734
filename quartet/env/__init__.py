"""Environment cluster: sessions in this process or served by a host, and one file per environment."""

from collections.abc import Sequence

from quartet import config
from quartet.env.base import Environment, EnvPool
from quartet.errors import ConfigError, nearest
from quartet.registry import build


def make_environment(env: config.Env) -> Environment:
    """Make the environment that a recipe names. Raise `ConfigError` for an unknown one."""
    return build(env)


def make_pool(env: config.Env) -> EnvPool:
    """Return a pool of sessions in this process, or in child processes if `env.session_memory_megabytes` is set.

    Raise `ConfigError` for an unknown environment, `SetupError` if the environment cannot run on this machine.
    """
    if env.session_memory_megabytes:
        from quartet.env.isolated.pool import IsolatedPool

        return IsolatedPool(env)
    return make_environment(env).pool(env)


def suite_families(env: config.Env) -> list[str]:
    """Return the recipe's task families, or all families of the environment if the recipe lists none.

    Raise `ConfigError` with the nearest known name for an unknown family, and for one that is listed twice.
    """
    known = make_environment(env).families()
    for family in env.families:
        if family not in known:
            raise ConfigError(f"unknown task family {family!r} of {env.name!r}", nearest(family, known))
        if env.families.count(family) > 1:  # evaluations would play its episodes twice
            raise ConfigError(f"env.families: {family} appears twice", "list each family once")
    return env.families or known


def undemonstrated_families(env: config.Env) -> set[str]:
    """Return the recipe's families for which no demonstrations are used."""
    return make_environment(env).undemonstrated() & set(suite_families(env))


def family_categories(env: config.Env) -> dict[str, set[str]]:
    """Return the recipe's families of each category. Leave out categories that have none or all of its families."""
    known, categories = set(suite_families(env)), make_environment(env).family_categories()
    chosen = {name: families & known for name, families in categories.items()}
    return {name: families for name, families in chosen.items() if families and families != known}


def train_tasks(env: config.Env, families: Sequence[str]) -> dict[str, int]:
    """Return the number of training tasks of each family that has a fixed number of them."""
    environment = make_environment(env)
    return {family: number for family in families if (number := environment.num_train_tasks(family)) is not None}


def held_out_tasks(env: config.Env, families: Sequence[str]) -> dict[str, int]:
    """Return the number of held-out tasks of each family that has a fixed number of them."""
    environment = make_environment(env)
    return {family: number for family in families if (number := environment.num_held_out_tasks(family)) is not None}


def turn_limit(env: config.Env, family: str, upper_bound: int) -> int:
    """Return the environment's turn limit for the family, at most `upper_bound`; `upper_bound` if it has no limit."""
    return min(upper_bound, make_environment(env).max_turns(family) or upper_bound)
