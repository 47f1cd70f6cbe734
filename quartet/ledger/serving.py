"""Versions that the engines serve. The functions run inside the caller's transaction.

An engine reports two versions: the served one, from which it samples, and the settled one, the newest that it has
either loaded or refused.
"""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.modules import member_names, reachable_members
from quartet.ledger.policy_rows import ancestry_of, newest
from quartet.ledger.schema import run_values
from quartet.ledger.values import policy_key, read_value
from quartet.types import MAIN

SETTLED, SERVED, ENGINES = "settled_version", "served_version", "engines"
"""Keys of the run's values: for the settled and the served version of a policy at an engine, and for the engines'
names."""
FIRST_ENGINE = "engine"
_STARTING_WITH = sa.select(run_values).where(run_values.c.key.startswith(sa.bindparam("name")))


def engine_key(engine: str, name: str, policy: str) -> str:
    """Return the key of a value that the run stores per engine and policy."""
    return policy_key(name if engine == FIRST_ENGINE else f"{name}/{engine}", policy)


def reported(connection: Connection, policy: str, name: str) -> list[int | None]:
    """Return the version that each engine reported as `name`; None for an engine without a report.

    The engines are those of the recipe, and those that joined the run. A joined engine counts from its first URL on:
    it gets no requests before, and the run must not wait while it reads its weights.
    """
    expected = read_value(connection, ENGINES, [FIRST_ENGINE])
    versions = _reports(connection, policy, name)
    return [versions.get(engine) for engine in dict.fromkeys([*expected, *reachable_members(connection, FIRST_ENGINE)])]


def is_starting(connection: Connection, policy: str) -> bool:
    """Return whether a live engine has not yet settled any version of the policy. It may be loading one that was the
    newest when it started."""
    return not _reports(connection, policy, SETTLED).keys() >= set(member_names(connection, FIRST_ENGINE))


def served_version(connection: Connection, policy: str) -> int:
    """Return the oldest version that an engine samples from; the newest version if no engine has reported one."""
    served = [version for version in reported(connection, policy, SERVED) if version is not None]
    return min([newest(connection, policy).version, *served])


def all_settled(connection: Connection, policies: Iterable[str]) -> bool:
    """Return whether every engine has loaded or refused the newest version of each of these policies."""
    return all(
        set(reported(connection, policy, SETTLED)) == {newest(connection, policy).version} for policy in policies
    )


def most_versions_behind(connection: Connection, policies: Iterable[str]) -> int:
    """Return the largest lag of a token sampled now, over all engines and these policies."""
    return max(_versions_behind(connection, policy) for policy in policies)


def _versions_behind(connection: Connection, policy: str) -> int:
    served = [version for version in reported(connection, policy, SERVED) if version is not None]
    version = newest(connection, policy).version
    return max(ancestry_of(connection, policy).lags(served, version), default=0)


def served_versions(connection: Connection, policy: str) -> dict[str, int]:
    """Return, for each engine, the version of the policy from which it samples. Engines without a report are left
    out."""
    return _reports(connection, policy, SERVED)


def _reports(connection: Connection, policy: str, name: str) -> dict[str, int]:
    """Return the versions that engines reported as `name`, also of engines that have left the run."""
    versions: dict[str, int] = {}
    for row in connection.execute(_STARTING_WITH, {"name": name}):
        key, _, owner = row.key.partition("@")
        if (owner or MAIN) == policy:
            versions[key.partition("/")[2] or FIRST_ENGINE] = row.value
    return versions
