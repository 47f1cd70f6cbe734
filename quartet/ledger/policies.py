"""Committed weights of each policy. Versions of one policy name are unique, even after a roll-back."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.part import LedgerPart
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.schema import policies, run_values
from quartet.types import MAIN, Ancestry, Policy

_SETTLED, _SERVED, _ENGINES = "settled_version", "served_version", "engines"
_FIRST_ENGINE = "engine"
LAST_TRAIN_STEP = "last_train_step"


class Policies(LedgerPart):
    def register_initial_policy(self, path: str) -> Policy:
        """Commit the run's initial weights as version 0. Raises `LedgerError` if there is a version 0."""
        with self._database.write() as connection:
            if connection.execute(self._mine().where(policies.c.version == 0)).first():
                raise LedgerError("this run already has an initial policy", "continue it with --resume")
            return self._insert_policy(connection, path, train_step=0)

    def latest_policy(self) -> Policy:
        """Return the newest committed policy. Raises `LedgerError` if there is none yet."""
        with self._database.read() as connection:
            return self._latest_policy(connection)

    def expect_engines(self, names: list[str]) -> None:
        """Set the engines that serve the run; the newest policy is settled when all of them have reported it."""
        self.set_value(_ENGINES, names)

    def mark_settled(self, version: int, *, serving: int, engine: str = _FIRST_ENGINE) -> None:
        """Record that an engine loaded a version, or refused it after failed checks, and is done with it.

        `serving` is the version that the engine samples from: the same one or, after a refusal, an earlier one.
        """
        self.set_value(self._key(_of(engine, _SERVED)), serving)
        self.set_value(self._key(_of(engine, _SETTLED)), version)
        self.doorbells.ring("manager", "worker")

    def latest_is_settled(self) -> bool:
        """Return whether every engine has loaded or refused the newest version of each of the run's policies."""
        with self._database.read() as connection:
            return self._latest_is_settled(connection)

    def versions_behind(self) -> int:
        """Return the lag of a token sampled now: train steps from the served to the newest policy.

        This is the maximum over all engines and trained policies.
        """
        with self._database.read() as connection:
            return self._versions_behind(connection)

    def settled_version(self) -> int:
        """Return the newest version that all engines have loaded or refused; any of them may be loading a newer one.

        An engine without a report is left out: it is starting, and tries one policy after the other.
        """
        with self._database.read() as connection:
            said = [version for version in self._by_engine(connection, _SETTLED) if version is not None]
            return min([self._latest_policy(connection).version, *said])

    def ancestry(self) -> Ancestry:
        """Return the ancestry of the policies, which determines the lag of every token."""
        with self._database.read() as connection:
            return self._ancestry(connection)

    def version_before(self, count: int) -> int:
        """Return the live version with `count` newer live ones, or 0 if there are not that many."""
        query = self._mine(policies.c.version).where(~policies.c.rolled_back).order_by(policies.c.version.desc())
        with self._database.read() as connection:
            return connection.execute(query.offset(count).limit(1)).scalar() or 0

    def policies(self) -> list[Policy]:
        """Return all live committed policies, oldest first; the disk budget may have deleted some folders."""
        query = self._mine().where(~policies.c.rolled_back).order_by(policies.c.version)
        with self._database.read() as connection:
            return [self._policy(row) for row in connection.execute(query)]

    def loadable_policies(self) -> list[Policy]:
        """Return the committed policies that may be served, newest first: neither rolled back nor deleted."""
        query = self._mine().where(~policies.c.rolled_back, ~policies.c.deleted)
        with self._database.read() as connection:
            return [self._policy(row) for row in connection.execute(query.order_by(policies.c.version.desc()))]

    def policies_on_disk(self) -> list[Policy]:
        """Return the policies whose folders are not deleted, rolled back ones included, oldest first."""
        query = self._mine().where(~policies.c.deleted).order_by(policies.c.version)
        with self._database.read() as connection:
            return [self._policy(row) for row in connection.execute(query)]

    def next_version(self) -> int:
        """Return the version of the next policy: the highest one so far, rolled back ones included, plus 1."""
        with self._database.read() as connection:
            return self._next_version(connection)

    def mark_deleted(self, version: int) -> None:
        """Mark a policy as deleted, before its folder is deleted, so that no process loads it any more."""
        with self._database.write() as connection:
            connection.execute(self._change(version).values(deleted=True))

    def mark_best(self, version: int, success: float) -> None:
        """Record a policy's held-out success rate, by which `best_policy` chooses."""
        with self._database.write() as connection:
            connection.execute(self._change(version).values(success=success))

    def best_policy(self) -> Policy | None:
        """Return the policy with the highest held-out success rate, the newest on ties; None before any evaluation."""
        query = (
            self._mine()
            .where(policies.c.success.is_not(None), ~policies.c.rolled_back, ~policies.c.deleted)
            .order_by(policies.c.success.desc(), policies.c.version.desc())
            .limit(1)
        )
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else self._policy(row)

    def _mine(self, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return sa.select(*(columns or (policies,))).where(policies.c.name == self.policy)

    def _change(self, version: int) -> sa.Update:
        return sa.update(policies).where(policies.c.name == self.policy, policies.c.version == version)

    def _may_train(self, connection: Connection) -> bool:
        """Return whether the policy is below the train step limit of `limit_train_steps`."""
        last = self._value(connection, self._key(LAST_TRAIN_STEP), None)
        return last is None or self._latest_policy(connection).train_step < last

    def _ancestry(self, connection: Connection) -> Ancestry:
        query = self._mine(policies.c.version, policies.c.train_step).where(policies.c.rolled_back)
        return Ancestry(rolled_back={row.version: row.train_step for row in connection.execute(query)})

    def _latest_is_settled(self, connection: Connection) -> bool:
        ledgers = [self.of(policy) for policy in (*self.trained, *self.frozen)]
        return all(
            set(ledger._by_engine(connection, _SETTLED)) == {ledger._latest_policy(connection).version}
            for ledger in ledgers
        )

    def _latest_policy(self, connection: Connection) -> Policy:
        query = self._mine().where(~policies.c.rolled_back).order_by(policies.c.version.desc()).limit(1)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise LedgerError("this run has no policy yet", "register the initial policy first")
        return self._policy(row)

    def _served_version(self, connection: Connection) -> int:
        """Return the oldest version that an engine samples from; the newest version if no engine has reported one."""
        served = [version for version in self._by_engine(connection, _SERVED) if version is not None]
        return min([self._latest_policy(connection).version, *served])

    def _versions_behind(self, connection: Connection) -> int:
        return max(ledger._own_versions_behind(connection) for ledger in self.each())

    def _own_versions_behind(self, connection: Connection) -> int:
        served = [version for version in self._by_engine(connection, _SERVED) if version is not None]
        newest = self._latest_policy(connection).version
        return max(self._ancestry(connection).lags(served, newest), default=0)

    def _by_engine(self, connection: Connection, name: str) -> list[int | None]:
        engines = self._value(connection, _ENGINES, [_FIRST_ENGINE])
        return [self._value(connection, self._key(_of(engine, name)), None) for engine in engines]

    def _next_version(self, connection: Connection) -> int:
        newest = connection.execute(self._mine(sa.func.max(policies.c.version))).scalar()
        return 0 if newest is None else newest + 1

    def _insert_policy(self, connection: Connection, path: str, train_step: int) -> Policy:
        policy = Policy(name=self.policy, version=self._next_version(connection), path=path, train_step=train_step)
        connection.execute(
            sa.insert(policies).values(
                version=policy.version, path=path, train_step=train_step, created_at=self._clock(), name=policy.name
            )
        )
        return policy

    def _policy(self, row: Any) -> Policy:
        return Policy(version=row.version, path=self._own(row), train_step=row.train_step, name=row.name)

    def _own(self, row: Any) -> str:
        """Return a policy's path; a trained policy is located in the run's current folder, which may have moved."""
        path, folder = Path(row.path), policies_root(self.run_dir, row.name)
        trained_here = row.version > 0 and path.is_absolute() and path.parent.name == folder.name
        return str(folder.resolve() / path.name) if trained_here else row.path


def _of(engine: str, name: str) -> str:
    """Return the name of a value that the run stores per engine."""
    return name if engine == _FIRST_ENGINE else f"{name}/{engine}"


def served_versions(connection: Connection, policy: str) -> dict[str, int]:
    """Return the version of a policy that each engine samples from; engines that never reported one are left out."""
    query = sa.select(run_values).where(run_values.c.key.startswith(_SERVED))
    served: dict[str, int] = {}
    for row in connection.execute(query):
        key, _, owner = row.key.partition("@")
        if (owner or MAIN) == policy:
            served[key.partition("/")[2] or _FIRST_ENGINE] = row.value
    return served
