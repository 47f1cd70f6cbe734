"""What training made of one rollout's tokens: computed again from its stored group, by the trainer's own code."""

from typing import Any

import numpy as np
import sqlalchemy as sa
from msgspec import Struct, field
from sqlalchemy import Connection

from quartet.data.blobs import DamagedBlobError
from quartet.data.ledger.members import MEMBERS, task_of
from quartet.data.ledger.pool import REPLAYED
from quartet.data.schema import batches, replays, trajectories
from quartet.data.trajectory_store import TrajectoryStore
from quartet.errors import QuartetError
from quartet.observe.token_values import CallValues, read_token_values, unpacked
from quartet.registry import build
from quartet.train.packing import PackedBatch, advantages, pack_batch
from quartet.types import Batch, BatchState, Group, GroupMember, Purpose, ReplayRule
from quartet.web.queries.rollout import RolloutFacts
from quartet.web.viewed_run import ViewedRun


class Training(Struct, frozen=True, kw_only=True):
    """Of one rollout in its own group."""

    advantage: float | None = None
    """The same at each of its tokens; None where it does not count."""
    trained: dict[int, np.ndarray] | None = None
    """By the index of the call, [num_response_tokens]: True at tokens that were trained; a call that is not there has
    none. None before training."""
    values: dict[int, CallValues] = field(default_factory=dict)
    """What the trainer kept, by the index of the call."""
    missing: str = ""
    """Why there is less than there could be; empty when nothing is missing."""


def training_of(connection: Connection, run: ViewedRun, facts: RolloutFacts) -> Training:
    """Advantage and mask of a training rollout's tokens, and what the trainer kept of them."""
    group, final = facts.group, facts.final
    if group.purpose != Purpose.TRAIN or final is None:
        return Training(missing="only finished training rollouts have an advantage")
    if not final.counted or final.excluded:
        return Training(missing=f"it does not count in its group: {final.excluded or final.status}")
    try:
        members = _members(connection, run.ledger.store, group.id)
    except DamagedBlobError as error:
        return Training(missing=f"a record of its group cannot be read: {error.what}")
    batch = connection.execute(sa.select(batches).where(batches.c.id == group.batch_id)).one_or_none()
    return _computed(members, batch, run, facts)


def _computed(members: list[GroupMember], row: Any | None, run: ViewedRun, facts: RolloutFacts) -> Training:
    batch = Batch(
        batch_id=row.id if row else 0,
        attempt=0,
        train_step=row.train_step if row else 0,
        start_version=row.start_version if row else 0,
        ancestry=run.ledger.ancestry(),
        groups=[Group(group_id=facts.group.id, task=task_of(facts.group), members=members)],
    )
    estimator = build(run.recipe.advantage)
    own = [(member.rollout_id, value) for _, member, value in advantages(batch, estimator)]
    index = next(n for n, (rollout_id, _) in enumerate(own) if rollout_id == facts.rollout.id)
    advantage = own[index][1]
    if row is None or row.state != BatchState.COMMITTED:
        return Training(advantage=advantage, missing="no train step has used it: no mask, no importance weight")
    try:
        packed = pack_batch(batch, estimator, run.recipe.admission.max_lag)
    except QuartetError as error:
        return Training(advantage=advantage, missing=error.what)
    values = read_token_values(run.run_dir, row.train_step, row.id, facts.rollout.id)
    trained = {call: ~np.isnan(unpacked(kept.logprobs)) for call, kept in values.items()} or _mask(packed, index)
    missing = "" if values else "the trainer's log-probs were not kept (disk.max_token_values_megabytes)"
    return Training(advantage=advantage, trained=trained, values=values, missing=missing)


def _mask(packed: PackedBatch, index: int) -> dict[int, np.ndarray]:
    """Trained tokens by call, of the trajectory at this place of the batch."""
    trained: dict[int, np.ndarray] = {}
    for branch in packed.branches:
        if branch.trajectory_index == index:
            for call in np.unique(branch.turns_L[branch.turns_L >= 0]).tolist():
                trained[call] = branch.trained_L[branch.turns_L == call]
    return trained


def _members(connection: Connection, store: TrajectoryStore, group_id: int) -> list[GroupMember]:
    """The group as a trainer would claim it. Raises `DamagedBlobError`."""
    rows = [*connection.execute(MEMBERS.where(trajectories.c.group_id == group_id))]
    rows += connection.execute(REPLAYED.where(replays.c.group_id == group_id))
    found = store.load_many(row.blob for row in rows)
    members: list[GroupMember] = []
    for row in rows:
        trajectory, rule = found[row.blob], getattr(row, "rule", None)
        if isinstance(trajectory, DamagedBlobError):
            raise trajectory
        replay = ReplayRule(rule) if rule else None
        members.append(GroupMember(rollout_id=row.rollout_id, trajectory=trajectory, replay=replay))
    return members
