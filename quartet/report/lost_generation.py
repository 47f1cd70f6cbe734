"""Generation that failures threw away: seconds in which engines sampled tokens that are in no record that counts.

Engines record a span for every answer, in files that outlive their death except for the last second. The worker's own
spans also contain the time in which it could not reach the engine. They count only if the engine is another program,
which records no answers.

An attempt was cut off if it left no trajectory, or one that was retried or superseded. Its calls are thrown away unless
the next attempt continued from them; a rollout that waits for its next attempt keeps those in its journal. A paused
rollout (`partial`) keeps its tokens, and so does a cancelled or evicted one, which nothing samples again.
"""

import re
import sys
import time
from collections import Counter, defaultdict

import sqlalchemy as sa

from quartet.ledger import Ledger
from quartet.ledger.schema import TrajectoryKind, policies, rollouts, trajectories
from quartet.telemetry.records import read_records
from quartet.telemetry.spans import read_spans
from quartet.types import RolloutState

_ATTEMPT = re.compile(r"rollout (\d+)\.(\d+)")
_SAMPLED_AGAIN = (TrajectoryKind.RETRIED, TrajectoryKind.SUPERSEDED)


def lost_generation_seconds(ledger: Ledger) -> float:
    """Return the seconds of generation of attempts that were thrown away since the run began.

    If the next attempts continued from n of m calls that were cut off, the share 1 - n / m of their time is lost.
    Attempts that run now are left out. With `observe.rollouts_per_span` above 1 only the recorded rollouts count.
    """
    cut_off, recalled = _generations(ledger)
    continued, seconds = _continued_calls(ledger), 0.0
    for rollout_id, calls in cut_off.items():
        kept = min(max(continued[rollout_id] - recalled[rollout_id], 0), len(calls))
        seconds += sum(calls) * (1 - kept / len(calls))
    return seconds


def _generations(ledger: Ledger) -> tuple[dict[int, list[float]], Counter[int]]:
    """Return the seconds of each call of attempts that were cut off, by rollout, and the number of calls of recalled
    attempts, from which the next attempts continued, too."""
    with ledger.read() as connection:
        began = connection.execute(sa.select(sa.func.min(policies.c.created_at))).scalar()
        columns = (trajectories.c.rollout_id, trajectories.c.attempt, trajectories.c.kind)
        rows = connection.execute(sa.select(*columns).where(trajectories.c.kind.not_in(_SAMPLED_AGAIN)))
        ended = {(row.rollout_id, row.attempt): row.kind for row in rows}
        running = sa.select(rollouts.c.id, rollouts.c.attempt).where(rollouts.c.state == RolloutState.LEASED)
        ended |= {(row.id, row.attempt): RolloutState.LEASED for row in connection.execute(running)}
    spans = read_spans(ledger.run_dir, began or 0.0, time.time(), max_spans=sys.maxsize).spans
    activity = "answer" if any(span.name == "answer" for span in spans) else "generate"
    cut_off: defaultdict[int, list[float]] = defaultdict(list)
    recalled: Counter[int] = Counter()
    for span in spans:
        attempt = _ATTEMPT.fullmatch(span.trace)
        if span.name == activity and attempt:
            place = int(attempt[1]), int(attempt[2])
            recalled[place[0]] += ended.get(place) == TrajectoryKind.PARTIAL
            if place not in ended:
                cut_off[place[0]].append(span.seconds)
    return cut_off, recalled


def _continued_calls(ledger: Ledger) -> Counter[int]:
    """Return the number of calls that each rollout did not sample again, or will not at its next attempt."""
    continued: Counter[int] = Counter()
    for record in read_records(ledger.run_dir, "rollout"):
        continued[record["rollout_id"]] = max(continued[record["rollout_id"]], record.get("continued_calls", 0))
    columns = (rollouts.c.id, rollouts.c.attempt)
    unfinished = rollouts.c.state.in_((RolloutState.QUEUED, RolloutState.LEASED))
    with ledger.read() as connection:
        rows = connection.execute(sa.select(*columns).where(unfinished)).all()
    for row in rows:
        continued[row.id] = len(ledger.journals.calls(row.id, row.attempt + 1))
    return continued
