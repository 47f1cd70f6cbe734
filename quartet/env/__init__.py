"""Environment cluster: sessions in process or behind a host, and one file per environment."""

from quartet import config
from quartet.env.base import Environment, EnvPool
from quartet.errors import ConfigError, nearest
from quartet.registry import build


def make_environment(env: config.Env) -> Environment:
    """Make the environment that a recipe names. Raises `ConfigError` for an unknown one."""
    return build(env)


def make_pool(env: config.Env) -> EnvPool:
    """Return sessions in this process. Raises `ConfigError` for an unknown environment, `SetupError` when it cannot
    run."""
    return make_environment(env).pool(env)


def suite_families(env: config.Env) -> list[str]:
    """Return the task families that the recipe uses: those it lists, or all.

    Raises `ConfigError` with the nearest.
    """
    known = make_environment(env).families()
    for family in env.families:
        if family not in known:
            raise ConfigError(f"unknown task family {family!r} of {env.name!r}", nearest(family, known))
    return env.families or known


def undemonstrated_families(env: config.Env) -> set[str]:
    """Return the recipe's families that were never demonstrated."""
    return make_environment(env).undemonstrated() & set(suite_families(env))


def turn_limit(env: config.Env, family: str, upper_bound: int) -> int:
    """Return how many turns a rollout of this family may take: the environment's limit where it has one, never above
    `upper_bound`."""
    return min(upper_bound, make_environment(env).max_turns(family) or upper_bound)
