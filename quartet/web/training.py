"""Values that the trainer stored for one rollout's tokens."""

from typing import Any

import numpy as np
import sqlalchemy as sa
from msgspec import Struct, field
from sqlalchemy import Connection

from quartet.errors import RecordsError
from quartet.ledger.schema import batches
from quartet.telemetry.token_values import CallValues, assigned, read_token_values
from quartet.types import BatchState, Purpose
from quartet.web.queries.rollout import RolloutFacts
from quartet.web.viewed_run import ViewedRun


class Training(Struct, frozen=True, kw_only=True):
    """Values of a rollout's tokens from the train step that trained it in its own group."""

    values: dict[int, CallValues] | None = None
    """Stored values by the index of the call. A call without an entry has no trained token. None if no values are
    stored."""
    advantages: dict[int, np.ndarray] = field(default_factory=dict)
    """Advantages [num_response_tokens] by the index of the call; NaN at tokens that were not trained."""
    missing: str = ""
    """Reason why values are missing; empty if none are missing."""

    @property
    def advantage_range(self) -> list[float]:
        """Smallest and largest advantage of the tokens; one number if they are equal, empty if none is known."""
        known = {float(value) for values_R in self.advantages.values() for value in values_R if not np.isnan(value)}
        return sorted({min(known), max(known)}) if known else []


def training_of(connection: Connection, run: ViewedRun, facts: RolloutFacts) -> Training:
    """Return the values that the trainer stored for a training rollout's tokens, or why there are none."""
    group, final = facts.group, facts.final
    if group.purpose != Purpose.TRAIN or final is None:
        return Training(missing="only finished training rollouts have an advantage")
    if not final.counted or final.excluded:
        return Training(missing=f"the rollout does not count in its group: {final.excluded or final.status}")
    batch = _committed_batch(connection, group)
    if batch is None:
        return Training(missing="no train step has used the rollout: no advantage, no mask, no importance weight")
    return _stored(run, batch, (facts.rollout.id, final.part, group.id))


def credit_of_group(connection: Connection, run: ViewedRun, facts: RolloutFacts) -> dict[int, dict[int, float]]:
    """Return the mean advantage of the trained tokens of each call of a rollout's group, by rollout and call index.

    Empty if no train step has used the group, or if its values are damaged or not kept any more.
    """
    group = facts.group
    batch = _committed_batch(connection, group)
    if batch is None:
        return {}
    part = facts.final.part if facts.final else ""
    credit: dict[int, dict[int, float]] = {}
    try:
        calls = read_token_values(run.run_dir, batch.train_step, batch.id) or []
    except RecordsError:  # the page of the rollout says so
        return {}
    for call in calls:
        values_R = assigned(call.advantages, call.trained)
        if (call.part, call.group_id or group.id) == (part, group.id) and values_R is not None and call.trained.any():
            credit.setdefault(call.rollout_id, {})[call.call_index] = float(np.nanmean(values_R))
    return credit


def _committed_batch(connection: Connection, group: Any) -> Any | None:
    """Return the row of the batch that trained a group, None if no train step has."""
    batch = connection.execute(sa.select(batches).where(batches.c.id == group.batch_id)).one_or_none()
    return batch if batch is not None and batch.state == BatchState.COMMITTED else None


def _stored(run: ViewedRun, batch: Any, owner: tuple[int, str, int]) -> Training:
    """Read the values of one batch; `owner` is the rollout, its part and its group."""
    try:
        calls = read_token_values(run.run_dir, batch.train_step, batch.id)
    except RecordsError as error:
        return Training(missing=f"the trainer's values cannot be read: {error.what}")
    if calls is None:
        return Training(missing="the trainer's values are not kept any more (disk.max_token_values_megabytes)")
    own = [call for call in calls if (call.rollout_id, call.part, call.group_id or owner[-1]) == owner]
    advantages = {call.call_index: assigned(call.advantages, call.trained) for call in own}
    return Training(
        values={call.call_index: call for call in own},
        advantages={index: values_R for index, values_R in advantages.items() if values_R is not None},
    )
