"""Generation that failures threw away: seconds in which engines sampled tokens that are in no record that counts.

The worker records a span for every generation, in files that outlive its death except for its last second. An attempt
is thrown away if it left no trajectory, or one that was retried or superseded: the next attempt samples again. A paused
rollout (`partial`) keeps its tokens, and so does a cancelled or evicted one, which nothing samples again.
"""

import re
import sys
import time

import sqlalchemy as sa

from quartet.ledger import Ledger
from quartet.ledger.schema import TrajectoryKind, policies, rollouts, trajectories
from quartet.telemetry.spans import read_spans
from quartet.types import RolloutState

_ATTEMPT = re.compile(r"rollout (\d+)\.(\d+)")
_SAMPLED_AGAIN = (TrajectoryKind.RETRIED, TrajectoryKind.SUPERSEDED)


def lost_generation_seconds(ledger: Ledger) -> float:
    """Return the seconds of generation of attempts that were thrown away since the run began.

    Attempts that run now are left out. With `observe.rollouts_per_span` above 1 only the recorded rollouts count.
    """
    with ledger.read() as connection:
        began = connection.execute(sa.select(sa.func.min(policies.c.created_at))).scalar()
        kept = sa.select(trajectories.c.rollout_id, trajectories.c.attempt)
        rows = connection.execute(kept.where(trajectories.c.kind.not_in(_SAMPLED_AGAIN)))
        safe = {(row.rollout_id, row.attempt) for row in rows}
        running = sa.select(rollouts.c.id, rollouts.c.attempt).where(rollouts.c.state == RolloutState.LEASED)
        safe |= {(row.id, row.attempt) for row in connection.execute(running)}
    if began is None:
        return 0.0
    found = read_spans(ledger.run_dir, began, time.time(), max_spans=sys.maxsize).spans
    seconds = 0.0
    for span in found:
        attempt = _ATTEMPT.fullmatch(span.trace)
        if span.name == "generate" and attempt and (int(attempt[1]), int(attempt[2])) not in safe:
            seconds += span.seconds
    return seconds
