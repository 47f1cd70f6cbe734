"""Vocabulary sizes of the run's policies. Token ids of a trajectory are checked against them before it is stored."""

from quartet.ledger.run_database import RunDatabase
from quartet.ledger.values import policy_key

_KEY = "vocabulary_size"


def vocabulary_size(db: RunDatabase, policy: str) -> int | None:
    """Return the recorded size of any policy of the run; None if none was recorded. Reads the database once."""
    if policy not in db.vocabulary_sizes:
        db.vocabulary_sizes[policy] = db.value(policy_key(_KEY, policy))
    return db.vocabulary_sizes[policy]


def settle_vocabulary(db: RunDatabase, size: int) -> None:
    """Record the size of the policy's vocabulary, which is the same for all its versions."""
    db.set_value(policy_key(_KEY, db.policy), size)
    db.vocabulary_sizes.pop(db.policy, None)
