"""Checks of a simulated run against its ledger: nothing lost, nothing trained twice, no lease without an end."""

from benchmarks.virtual.simulation import POLL_SECONDS, Simulation
from quartet.types import RolloutState


def check(simulation: Simulation) -> None:
    """Raise `AssertionError` if one of these promises is broken:

    * as many rollouts ended as were appended, or more if rollouts beyond a group's need are cancelled;
    * each rollout was trained at most once;
    * every lease is held by a session that runs, or by one that left less than a lease's duration ago.
    """
    rollouts, sessions, recipe = simulation.ledger.rollouts, simulation.sessions, simulation.recipe
    cancelled = rollouts.ended_in_training() - sessions.finished
    assert cancelled == 0 or (cancelled > 0 and recipe.straggler.name != "none"), (
        f"{sessions.finished} rollouts were appended, but {sessions.finished + cancelled} ended"
    )
    for trainer in simulation.trainers:
        assert len(set(trainer.trained)) == len(trainer.trained), "a rollout was trained twice"
    expired = simulation.clock.now - recipe.rollout.lease_seconds - 2 * POLL_SECONDS
    forgotten = rollouts.held(lease for left_at, lease in sessions.left if left_at < expired)
    assert not forgotten, f"{len(forgotten)} rollouts are still leased by sessions that left more than a lease ago"
    held = rollouts.held([*sessions.leases, *(lease for _, lease in sessions.left)])
    leased = simulation.ledger.statistics.queue_sizes().rollouts[RolloutState.LEASED]
    assert len(held) == leased, f"{leased} rollouts are leased, but sessions hold {len(held)}"
