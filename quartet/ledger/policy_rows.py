"""Rows of one policy's committed versions. The functions run inside the caller's transaction."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import policies
from quartet.types import Ancestry, Policy


def of_policy(policy: str, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select all versions of a policy; all columns by default."""
    return sa.select(*(columns or (policies,))).where(policies.c.name == policy)


def newest(connection: Connection, policy: str) -> Any:
    """Return the row of the newest version that is not rolled back. Raises `LedgerError` if the policy has no version
    yet."""
    query = of_policy(policy).where(~policies.c.rolled_back).order_by(policies.c.version.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise LedgerError("this run has no policy yet", "register the initial policy first")
    return row


def ancestry_of(connection: Connection, policy: str) -> Ancestry:
    """Return the ancestry of a policy's versions, which determines the lag of every token."""
    query = of_policy(policy, policies.c.version, policies.c.train_step).where(policies.c.rolled_back)
    return Ancestry(rolled_back={row.version: row.train_step for row in connection.execute(query)})


def next_version(connection: Connection, policy: str) -> int:
    """Return the version of the next policy: the highest one so far, rolled back ones included, plus 1."""
    highest = connection.execute(of_policy(policy, sa.func.max(policies.c.version))).scalar()
    return 0 if highest is None else highest + 1


def insert_policy(db: RunDatabase, connection: Connection, path: str, train_step: int) -> Policy:
    """Commit weights on disk as the next version of the policy."""
    policy = Policy(name=db.policy, version=next_version(connection, db.policy), path=path, train_step=train_step)
    connection.execute(
        sa.insert(policies).values(
            version=policy.version, path=path, train_step=train_step, created_at=db.clock(), name=policy.name
        )
    )
    return policy


def policy_of(run_dir: Path, row: Any) -> Policy:
    """Return the record of a row; a trained policy is located in the run's current folder, which may have moved."""
    path, folder = Path(row.path), policies_root(run_dir, row.name)
    trained_here = row.version > 0 and path.is_absolute() and path.parent.name == folder.name
    located = str(folder.resolve() / path.name) if trained_here else row.path
    return Policy(version=row.version, path=located, train_step=row.train_step, name=row.name)
