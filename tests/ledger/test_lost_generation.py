"""Generation that failures threw away, from the spans of a worker and the kinds of its records."""

from benchmarks.lost_generation import lost_generation
from quartet.telemetry.record import Recorder
from quartet.types import RolloutLease, Status
from tests.ledger.samples import finish, plan, trajectory


def test_only_what_is_sampled_again_is_lost(ledger, clock):
    def generate(lease: RolloutLease) -> None:
        trace = f"rollout {lease.rollout_id}.{lease.attempt}"
        with recorder.span("rollout", trace=trace), recorder.span("generate", trace=trace):
            clock.now += 10

    with Recorder(ledger.run_dir, "worker", clock=clock) as recorder:
        ledger.groups.admit(plan(rollouts=4))
        finished, retried, paused, dies = ledger.rollouts.claim("w", 4, 60)
        for lease in (finished, retried, paused):
            generate(lease)
        finish(ledger, finished)
        ledger.trajectories.append(retried, trajectory(retried.task, status=Status.ERROR_ENV), 3)
        ledger.trajectories.recycle(paused, trajectory(paused.task, status=Status.CANCELLED), 3)
        generate(dies)
    assert lost_generation(ledger).waited == 10, "of the retried one; the last one is running"
    clock.now += 60
    ledger.rollouts.expire()
    assert lost_generation(ledger).waited == 20


def test_waiting_for_an_engine_that_cannot_be_reached_is_no_answer(ledger, clock):
    """The worker waits 10 s for each answer; the engine computes the first one in 2 s and never receives the second
    request."""
    ledger.groups.admit(plan(rollouts=2))
    leases = ledger.rollouts.claim("w", 2, 60)
    with (
        Recorder(ledger.run_dir, "worker", clock=clock) as worker,
        Recorder(ledger.run_dir, "engine", clock=clock) as engine,
    ):
        for lease, seconds in zip(leases, (2, 0), strict=True):
            trace = f"rollout {lease.rollout_id}.{lease.attempt}"
            with worker.span("generate", trace=trace):
                if seconds:
                    with engine.span("answer", trace=trace):
                        clock.now += seconds
                clock.now += 10 - seconds
    clock.now += 60
    ledger.rollouts.expire()
    assert lost_generation(ledger) == (20, 2)
