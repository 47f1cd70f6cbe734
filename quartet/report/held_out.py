"""Results of the evaluations before and after training, for display."""

import sqlalchemy as sa
from msgspec import Struct

from quartet.ledger import Ledger
from quartet.ledger.policy_rows import of_policy
from quartet.ledger.results import FamilyResult, success_rate, total
from quartet.ledger.schema import evaluations, policies

_MOST = 8
"""Maximum number of results shown. A run has two, and one more for each resume."""


class HeldOutResult(Struct, frozen=True, kw_only=True):
    """One complete evaluation. `time` is in Unix seconds."""

    time: float
    version: int
    train_step: int
    success: float
    """Mean success rate over families, between 0 and 1."""
    together: FamilyResult
    """Sum over all families."""


def newest_success(ledger: Ledger) -> float | None:
    """Return the success rate of the newest policy evaluated during training, on selection seeds.

    None before the first.
    """
    query = of_policy(ledger.policy, policies.c.success).where(policies.c.success.is_not(None), ~policies.c.rolled_back)
    with ledger.read() as connection:
        return connection.execute(query.order_by(policies.c.version.desc()).limit(1)).scalar()


def held_out_results(ledger: Ledger, how: str = "greedy") -> list[HeldOutResult]:
    """Return the whole evaluations before and after training, `greedy` or `sampled`, by time: the newest ones, and the
    first. Those of policies that were rolled back are left out."""
    query = (
        sa.select(evaluations.c.tag, evaluations.c.version, evaluations.c.created_at, policies.c.train_step)
        .join(policies, sa.and_(policies.c.name == ledger.policy, policies.c.version == evaluations.c.version))
        .where(evaluations.c.tag.endswith(f"/{how}"), ~policies.c.rolled_back)
        .order_by(evaluations.c.created_at.desc())
    )
    with ledger.read() as connection:
        rows = connection.execute(query).all()
    chosen = rows if len(rows) <= _MOST else [*rows[: _MOST - 1], rows[-1]]
    results = [
        (row, ledger.evaluations.results(row.tag)) for row in reversed(chosen) if ledger.evaluations.is_whole(row.tag)
    ]
    return [
        HeldOutResult(
            time=row.created_at,
            version=row.version,
            train_step=row.train_step,
            success=success,
            together=total(families),
        )
        for row, families in results
        if (success := success_rate(families)) is not None
    ]
