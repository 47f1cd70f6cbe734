"""Generation that failures threw away: seconds in which rollouts waited for samples that no record has.

The worker records a span for every generation, in files that outlive its death except for its last second. An attempt
was cut off if it left no trajectory, or one that was retried or superseded. Its calls are thrown away unless the next
attempt continued from them; a rollout that waits for its next attempt keeps those in its journal. A paused rollout
(`partial`) keeps its tokens, and so does a cancelled or evicted one, which nothing samples again. Samples that a router
discards within an attempt that counts are left out.
"""

import re
import sys
import time
from collections import Counter, defaultdict
from typing import NamedTuple

import sqlalchemy as sa

from quartet.ledger import Ledger
from quartet.ledger.schema import TrajectoryKind, policies, rollouts, trajectories
from quartet.telemetry.records import read_records
from quartet.telemetry.spans import read_spans
from quartet.types import RolloutState

_ATTEMPT = re.compile(r"rollout (\d+)\.(\d+)")
_SAMPLED_AGAIN = (TrajectoryKind.RETRIED, TrajectoryKind.SUPERSEDED)


class LostGeneration(NamedTuple):
    """Seconds of generation that failures threw away."""

    waited: float
    """Seconds in which workers waited for the samples. It is an upper bound: it contains the time in which they could
    not reach the engine."""
    answered: float
    """The part of it for which engines recorded that they computed an answer. It is a lower bound: an engine that is
    killed records no answer that it had been computing for less than half a minute."""


def lost_generation(ledger: Ledger) -> LostGeneration:
    """Return the generation of attempts that were thrown away since the run began.

    If the next attempts continued from n of m calls that were cut off, the share 1 - n / m of their time is lost.
    Attempts that run now are left out. With `observe.rollouts_per_span` above 1 only the recorded rollouts count.
    """
    cut_off, answers, recalled = _generations(ledger)
    continued, waited, answered = _continued_calls(ledger), 0.0, 0.0
    for rollout_id, calls in cut_off.items():
        kept = min(max(continued[rollout_id] - recalled[rollout_id], 0), len(calls))
        share = 1 - kept / len(calls)
        waited += share * sum(calls)
        answered += share * answers[rollout_id]
    return LostGeneration(waited, answered)


def _generations(ledger: Ledger) -> tuple[dict[int, list[float]], dict[int, float], Counter[int]]:
    """Return, by rollout, of attempts that were cut off the seconds of each call and those of the engines' answers, and
    the number of calls of recalled attempts, from which the next attempts continued, too."""
    with ledger.read() as connection:
        began = connection.execute(sa.select(sa.func.min(policies.c.created_at))).scalar()
        columns = (trajectories.c.rollout_id, trajectories.c.attempt, trajectories.c.kind)
        rows = connection.execute(sa.select(*columns).where(trajectories.c.kind.not_in(_SAMPLED_AGAIN)))
        ended = {(row.rollout_id, row.attempt): row.kind for row in rows}
        running = sa.select(rollouts.c.id, rollouts.c.attempt).where(rollouts.c.state == RolloutState.LEASED)
        ended |= {(row.id, row.attempt): RolloutState.LEASED for row in connection.execute(running)}
    cut_off: defaultdict[int, list[float]] = defaultdict(list)
    answers: defaultdict[int, float] = defaultdict(float)
    recalled: Counter[int] = Counter()
    for span in read_spans(ledger.run_dir, began or 0.0, time.time(), max_spans=sys.maxsize).spans:
        attempt = _ATTEMPT.fullmatch(span.trace)
        if attempt is None or span.name not in ("generate", "answer"):
            continue
        place = int(attempt[1]), int(attempt[2])
        if span.name == "answer":
            answers[place[0]] += 0.0 if place in ended else span.seconds
            continue
        recalled[place[0]] += ended.get(place) == TrajectoryKind.PARTIAL
        if place not in ended:
            cut_off[place[0]].append(span.seconds)
    return cut_off, answers, recalled


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
