"""Committed policies. A version of a policy name is never used twice, even after a roll-back."""

from typing import Any

import sqlalchemy as sa

from quartet.errors import ConfigError, LedgerError
from quartet.ledger.policy_rows import ancestry_of, insert_policy, newest, next_version, of_policy, policy_of
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import policies
from quartet.ledger.serving import (
    ENGINES,
    FIRST_ENGINE,
    SERVED,
    SETTLED,
    all_settled,
    engine_key,
    is_starting,
    most_versions_behind,
    reported,
)
from quartet.ledger.vocabulary import settle_vocabulary, vocabulary_size
from quartet.types import Ancestry, Policy


class Policies:
    """Committed versions of the policy, and the versions that the engines serve."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def register_initial(self, path: str) -> Policy:
        """Commit the run's initial weights as version 0. Raises `LedgerError` if there is a version 0."""
        with self._db.write() as connection:
            if connection.execute(self._mine().where(policies.c.version == 0)).first():
                raise LedgerError("this run already has an initial policy", "continue it with --resume")
            return insert_policy(self._db, connection, path, train_step=0)

    def latest(self) -> Policy:
        """Return the newest committed policy. Raises `LedgerError` if there is none yet."""
        with self._db.read() as connection:
            return policy_of(self._db.run_dir, newest(connection, self._db.policy))

    def live(self) -> list[Policy]:
        """Return the committed policies that are not rolled back, oldest first. The disk budget may have deleted some
        of their folders."""
        return self._read(self._mine().where(~policies.c.rolled_back).order_by(policies.c.version))

    def loadable(self) -> list[Policy]:
        """Return the committed policies that may be served, newest first: neither rolled back nor deleted."""
        there = self._mine().where(~policies.c.rolled_back, ~policies.c.deleted)
        return self._read(there.order_by(policies.c.version.desc()))

    def is_loadable(self, version: int) -> bool:
        """Return whether a version may be served: it is neither rolled back nor deleted."""
        return any(policy.version == version for policy in self.loadable())

    def on_disk(self) -> list[Policy]:
        """Return the policies whose folders are not deleted, rolled back ones included, oldest first."""
        return self._read(self._mine().where(~policies.c.deleted).order_by(policies.c.version))

    def best(self) -> Policy | None:
        """Return the loadable policy with the highest held-out success rate, the newest on ties; None if none was
        evaluated."""
        evaluated = self._mine().where(policies.c.success.is_not(None), ~policies.c.rolled_back, ~policies.c.deleted)
        found = self._read(evaluated.order_by(policies.c.success.desc(), policies.c.version.desc()).limit(1))
        return found[0] if found else None

    def chosen(self, which: str) -> Policy:
        """Return the policy that a command's `--policy` names, "best" or "latest". Raise `ConfigError` if no policy is
        the best."""
        if which == "latest":
            return self.latest()
        if (best := self.best()) is None:
            raise ConfigError(
                f"no evaluation during training has marked a best policy of {self._db.run_dir}", "use --policy latest"
            )
        return best

    def highest_success(self) -> float | None:
        """Return the highest held-out success rate of a policy that is not rolled back; None before any evaluation."""
        rates = self._mine(sa.func.max(policies.c.success)).where(~policies.c.rolled_back)
        with self._db.read() as connection:
            return connection.execute(rates).scalar()

    def mark_best(self, version: int, success: float) -> None:
        """Record a policy's held-out success rate, by which `best` chooses."""
        with self._db.write() as connection:
            connection.execute(self._change(version).values(success=success))

    def mark_deleted(self, version: int) -> None:
        """Mark a policy as deleted, before its folder is deleted, so that no process loads it any more."""
        with self._db.write() as connection:
            connection.execute(self._change(version).values(deleted=True))

    def next_version(self) -> int:
        """Return the version of the next policy: the highest one so far, rolled back ones included, plus 1."""
        with self._db.read() as connection:
            return next_version(connection, self._db.policy)

    def version_before(self, count: int) -> int:
        """Return the version that has `count` newer ones, or 0 if there are fewer. Rolled back versions are left
        out."""
        live = self._mine(policies.c.version).where(~policies.c.rolled_back).order_by(policies.c.version.desc())
        with self._db.read() as connection:
            return connection.execute(live.offset(count).limit(1)).scalar() or 0

    def ancestry(self) -> Ancestry:
        """Return the ancestry of the policies, which determines the lag of every token."""
        with self._db.read() as connection:
            return ancestry_of(connection, self._db.policy)

    def expect_engines(self, names: list[str]) -> None:
        """Set the names of the run's engines. A policy is settled when all of them have reported that they loaded or
        refused it."""
        self._db.set_value(ENGINES, names)

    def mark_settled(self, version: int, *, serving: int, engine: str = FIRST_ENGINE) -> None:
        """Record that an engine has settled a version: loaded it, or refused it after failed checks.

        `serving` is the version that the engine now samples from: the same one or, after a refusal, an earlier one.
        """
        self._db.set_value(engine_key(engine, SERVED, self._db.policy), serving)
        self._db.set_value(engine_key(engine, SETTLED, self._db.policy), version)
        self._db.notifier.notify("manager", "worker")

    def latest_is_settled(self) -> bool:
        """Return whether every engine has loaded or refused the newest version of each of the run's policies."""
        with self._db.read() as connection:
            return all_settled(connection, (*self._db.trained, *self._db.frozen))

    def settled_version(self) -> int:
        """Return the newest version that all engines have loaded or refused. Some engines may be loading a newer one.

        An engine without a report is left out, since it is still starting.
        """
        with self._db.read() as connection:
            said = [version for version in reported(connection, self._db.policy, SETTLED) if version is not None]
            return min([newest(connection, self._db.policy).version, *said])

    def engine_is_starting(self) -> bool:
        """Return whether a live engine has not yet settled any version of the policy, and may be loading one."""
        with self._db.read() as connection:
            return is_starting(connection, self._db.policy)

    def versions_behind(self) -> int:
        """Return the lag of a token that is sampled now: the number of train steps from the served to the newest
        policy.

        This is the maximum over all engines and trained policies.
        """
        with self._db.read() as connection:
            return most_versions_behind(connection, self._db.trained)

    @property
    def vocabulary_size(self) -> int | None:
        """Vocabulary size of the policy, recorded at the start of the run; None if none was recorded."""
        return vocabulary_size(self._db, self._db.policy)

    def settle_vocabulary(self, size: int) -> None:
        """Record the policy's vocabulary size, which is the same for all its versions."""
        settle_vocabulary(self._db, size)

    def _mine(self, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return of_policy(self._db.policy, *columns)

    def _change(self, version: int) -> sa.Update:
        return sa.update(policies).where(policies.c.name == self._db.policy, policies.c.version == version)

    def _read(self, query: sa.Select[Any]) -> list[Policy]:
        with self._db.read() as connection:
            return [policy_of(self._db.run_dir, row) for row in connection.execute(query)]
