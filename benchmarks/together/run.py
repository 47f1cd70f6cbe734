"""One way to train two policies that press in turn: both in one run, or each in a run in which the other is frozen."""

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from msgspec import Struct

from benchmarks.modes.figures import used
from benchmarks.modes.modes import COUPLED, DECOUPLED, modes, recipe
from benchmarks.modes.run import watch
from benchmarks.modes.worlds import Overrides
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.ledger.schema import batches

POLICIES = ("solver", "reviewer")
TOGETHER, APART, APART_SYNCHRONOUS = "together", "one after the other", "one after the other, synchronous"
WAYS: Mapping[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    TOGETHER: (DECOUPLED, (POLICIES,)),
    APART: (DECOUPLED, (("solver",), ("reviewer",))),
    APART_SYNCHRONOUS: (COUPLED, (("solver",), ("reviewer",))),
}
"""Name -> schedule, and for each run of the way the policies that it trains."""


class Timed(Struct, frozen=True, kw_only=True):
    """Times of one way, from the end of a policy's first train step to the end of its last."""

    seconds_per_train_step: float
    """Seconds in which every policy takes a train step: of two runs, the sum; of one, that of its slower policy."""
    engine_utilisation: float
    """Processor seconds per second of the engine process; of two runs, the mean."""
    lost: int
    trained_twice: int


def measure(way: str, world: Overrides, *, groups: int, sessions: int, seed: int, train_steps: int) -> Timed:
    """Train both policies for `train_steps` steps. Raises `SystemExit` if a run fails."""
    schedule, runs = WAYS[way]
    chosen = modes(max_lag=2)[schedule]
    timed = []
    for trained in runs:  # the loop seats trained policies first, so one after the other both are the first player
        sources = {name: {"trained": name in trained} for name in POLICIES}
        of_run = world | {"policies": sources}
        timed.append(_run(recipe(of_run, chosen, groups=groups, sessions=sessions, seed=seed), train_steps))
    return Timed(
        seconds_per_train_step=sum(one.seconds_per_train_step for one in timed),
        engine_utilisation=sum(one.engine_utilisation for one in timed) / len(timed),
        lost=sum(one.lost for one in timed),
        trained_twice=sum(one.trained_twice for one in timed),
    )


def _run(chosen: Recipe, train_steps: int) -> Timed:
    with tempfile.TemporaryDirectory() as folder:
        watched = watch(chosen, Path(folder), train_steps=train_steps)
        with closing(Ledger.view(watched.run_dir)) as ledger:
            committed = _committed(ledger)
    broken = {name: watched.summary[name] for name in ("lost", "trained_twice") if watched.summary[name]}
    if broken:
        raise ValueError(f"the run broke a promise, so its times say nothing: {broken}")
    began, ended, seconds = window(committed, chosen.trained_policies, train_steps)
    return Timed(
        seconds_per_train_step=seconds,
        engine_utilisation=used(watched.cpu, began, ended) / (ended - began),
        lost=watched.summary["lost"],
        trained_twice=watched.summary["trained_twice"],
    )


def window(
    committed: Mapping[str, Sequence[float]], trained: Sequence[str], train_steps: int
) -> tuple[float, float, float]:
    """Return the times of the first and the last counted commit, and the seconds per train step of the slower policy.

    `committed` has the times of each policy's commits. Raises `ValueError` unless exactly the policies `trained` were
    trained, each for at least `train_steps` steps.
    """
    counts = {policy: len(times) for policy, times in committed.items()}
    if set(counts) != set(trained) or min(counts.values()) < train_steps:
        raise ValueError(f"{train_steps} train steps of {', '.join(trained)} were to be made, and there are {counts}")
    ends = [times[:train_steps] for times in committed.values()]
    seconds = max((times[-1] - times[0]) / (train_steps - 1) for times in ends)
    return min(times[0] for times in ends), max(times[-1] for times in ends), seconds


def _committed(ledger: Ledger) -> dict[str, list[float]]:
    """Return the times at which each policy's train steps were committed, in Unix seconds."""
    query = sa.select(batches.c.policy, batches.c.committed_at).where(batches.c.committed_at.is_not(None))
    times: defaultdict[str, list[float]] = defaultdict(list)
    with ledger.read() as connection:
        for policy, committed_at in connection.execute(query.order_by(batches.c.train_step)):
            times[policy].append(committed_at)
    return times
