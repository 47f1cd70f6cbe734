"""Environment cluster: the Env protocol, sessions in process or behind a host, and one adapter per environment.

An adapter is registered by name here and imported only when a recipe names it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from quartet import config
from quartet.env.base import EnvPool
from quartet.errors import ConfigError, nearest
from quartet.registry import lookup


class Adapter(NamedTuple):
    """What an environment offers to the rest of Quartet."""

    pool: Callable[[config.Env], EnvPool]
    families: Callable[[str], list[str]]
    """Names of the task families of a suite; "" means the environment's default suite."""
    undemonstrated: Callable[[str], set[str]] = lambda suite: set()
    """Families of a suite that no demonstration may show; they are reported apart."""
    max_turns: Callable[[str, str], int | None] = lambda suite, family: None
    """Turns that the hardest task of a family needs, and a few to spare; None where nobody said."""
    observation_format: int = 1
    """Raised by who changes the texts of goals and pages: what was recorded before then reads differently."""
    grammar: str = ""
    """What an action looks like, for people who read why none was valid."""
    first_knobs: Mapping[str, Mapping[str, object]] = MappingProxyType({})
    """What a first recipe sets besides its defaults, by section: `quartet init` writes it."""


def make_pool(env: config.Env) -> EnvPool:
    """Sessions in this process. Raises `ConfigError` for an unknown environment, `SetupError` when it cannot run."""
    return _adapter(env.name).pool(env)


def suite_families(env: config.Env) -> list[str]:
    """Task families the recipe uses: the ones it lists, or the whole suite. Raises `ConfigError` with the nearest."""
    known = _adapter(env.name).families(env.suite)
    for family in env.families:
        if family not in known:
            raise ConfigError(f"unknown task family {family!r} of {env.name!r}", nearest(family, known))
    return env.families or known


def undemonstrated_families(env: config.Env) -> set[str]:
    """The recipe's families that were never demonstrated."""
    return _adapter(env.name).undemonstrated(env.suite) & set(suite_families(env))


def turn_limit(env: config.Env, family: str, upper_bound: int) -> int:
    """Turns a rollout of this family may take: the suite's limit where it has one, never above `upper_bound`."""
    return min(upper_bound, _adapter(env.name).max_turns(env.suite, family) or upper_bound)


def action_grammar(env: config.Env) -> str:
    """What an action of the environment looks like; empty where its adapter does not say."""
    return _adapter(env.name).grammar


def observation_format(env: config.Env) -> int:
    """Which form of goals and pages the environment writes now."""
    return _adapter(env.name).observation_format


def _miniwob() -> Adapter:
    from quartet.env.action import GRAMMAR
    from quartet.env.miniwob.env import MiniWobPool
    from quartet.env.miniwob.suite import families, max_turns, undemonstrated

    knobs = {
        "env": {"suite": "miniwob-24"},
        "rollout": {"max_turns": 16, "max_tokens": 40},
        "control": {"horizon": ["suite"]},
    }
    return Adapter(MiniWobPool, families, undemonstrated, max_turns, grammar=GRAMMAR, first_knobs=knobs)


def _bandit() -> Adapter:
    from quartet.env.bandit import BanditPool, families

    knobs = {"env": {"families": ["fixed"], "screenshots": False}, "rollout": {"max_turns": 1, "max_tokens": 8}}
    return Adapter(BanditPool, families, grammar="`click LABEL [1]` or `done`", first_knobs=knobs)


def _locks() -> Adapter:
    from quartet.env.locks import LocksPool, families

    knobs = {"env": {"suite": "locks", "screenshots": False}, "rollout": {"max_turns": 8, "max_tokens": 8}}
    return Adapter(LocksPool, families, grammar="`click LABEL [1]`", first_knobs=knobs)


def _desk() -> Adapter:
    from quartet.env.desk import DeskPool, families

    knobs = {"env": {"screenshots": False}, "rollout": {"max_turns": 8}}
    return Adapter(DeskPool, families, grammar="`click LABEL [1]` or `done`", first_knobs=knobs)


ENVS: dict[str, Callable[[], Adapter]] = {"miniwob": _miniwob, "bandit": _bandit, "locks": _locks, "desk": _desk}


def first_knobs(name: str) -> Mapping[str, Mapping[str, object]]:
    """What a first recipe for this environment sets besides its defaults. Raises `ConfigError` with the nearest."""
    return _adapter(name).first_knobs


def _adapter(name: str) -> Adapter:
    return lookup("environment", name, ENVS)()
