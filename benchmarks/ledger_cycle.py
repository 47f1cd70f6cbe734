"""What a run does again and again: a worker claims and appends the rollouts of a group, and the data manager closes it,
judges it and admits another one. The tick, the claim and the append are called as the modules call them."""

from collections.abc import Iterator
from contextlib import contextmanager

from quartet.ledger import Ledger
from quartet.manager.manager import DataManager
from quartet.recipe.file import parse_recipe
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    RolloutLease,
    Sampling,
    Status,
    TokenColumns,
    Trajectory,
    Turn,
)

GROUP, LEASE_SECONDS = 8, 1e6
RECIPE = {
    "name": "ledger",
    "model": {"path": "none"},
    "env": {"name": "bandit", "families": ["fixed"], "sessions": 16},
    "control": {"sampler": "uniform", "rollouts_per_group": GROUP},
    "admission": {"max_lag": 64},
    "train": {"groups_per_batch": 64},
    "evaluation": {"train_steps_per_evaluation": 1_000_000},
}


@contextmanager
def managed(ledger: Ledger) -> Iterator[DataManager]:
    """Return a data manager of a run whose engine has loaded the newest policy."""
    ledger.policies.mark_settled(ledger.policies.latest().version, serving=ledger.policies.latest().version)
    with Recorder(ledger.run_dir, "manager") as recorder:
        presence = Presence(ledger.modules, "manager", interval_seconds=0)
        yield DataManager(parse_recipe(RECIPE, "benchmarks.ledger_cycle"), ledger, recorder, presence)


def cycle(ledger: Ledger, manager: DataManager) -> None:
    """Claim and append rollouts until a group is complete, and let the data manager tick."""
    for lease in ledger.rollouts.claim("worker", GROUP, LEASE_SECONDS):
        append(ledger, lease)
    manager.tick()


def append(ledger: Ledger, lease: RolloutLease) -> None:
    """Append a record of one turn with the rollout's number among its tokens, so that no two records are equal."""
    call = Call(
        prompt_ids=[lease.rollout_id],
        response=TokenColumns(token_ids=[1, 2], logprobs=[-0.5, -0.5], versions=[0, 0]),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )
    turn = Turn(observation=Observation(goal="", text=""), call_index=0, response="")
    solved = lease.index % 2 == 0
    record = Trajectory(
        task=lease.task,
        status=Status.COMPLETED,
        calls=[call],
        turns=[turn],
        rewards={"task": float(solved)},
        success=solved,
    )
    ledger.trajectories.append(lease, record, max_attempts=3)
