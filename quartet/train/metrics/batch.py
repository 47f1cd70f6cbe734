"""Metrics of a train step in addition to the loss: lag, rewards, token counts and durations of phases."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from quartet.telemetry.record import Recorder
from quartet.telemetry.spans import Span
from quartet.train.packing.branches import MemberTokens, PackedBatch
from quartet.types import Batch, MemberUse


class PhaseTimer:
    """Timer of phases: `with timer("update"):` records a span and sets `seconds["update_seconds"]`."""

    def __init__(self, recorder: Recorder, train_step: int) -> None:
        self._recorder = recorder
        self.trace = f"train_step {train_step}"
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        with self._recorder.span(phase, trace=self.trace):
            yield
        self.seconds[f"{phase}_seconds"] = time.perf_counter() - start

    def passed(self, phase: str, start: float) -> None:
        """Record a phase that began at `start` (Unix seconds), before its train step was known, and has just ended."""
        seconds = self.seconds[f"{phase}_seconds"] = time.time() - start
        self._recorder.finished(Span(start=start, seconds=seconds, name=phase, trace=self.trace))


def batch_metrics(batch: Batch, packed: PackedBatch) -> dict[str, Any]:
    """Return metrics of the batch. Lag is in train steps and averaged over trajectories; token counts exclude padding.

    Rewards and successes are over the groups' own members, since replayed successes would inflate them.
    """
    members = [member.trajectory for group in batch.groups for member in group.members if member.replay is None]
    lags = [lag for lag, count in packed.lag_histogram.items() for _ in range(count)]
    return {
        **packed.credit_metrics,
        "trajectories": packed.num_trajectories,
        "replayed_trajectories": packed.num_trajectories - len(members),
        "groups": len(batch.groups),
        "zero_credit_group_share": zero_credit_group_share(packed),
        "branches_per_trajectory": packed.num_branches / max(1, packed.num_trajectories),
        "lag_mean_versions": sum(lags) / max(1, len(lags)),
        "lag_max_versions": max(lags, default=0),
        "lag_histogram": {str(lag): count for lag, count in packed.lag_histogram.items()},
        "reward_mean": sum(trajectory.reward for trajectory in members) / max(1, len(members)),
        "success_mean": sum(trajectory.success for trajectory in members) / max(1, len(members)),
        "trained_tokens": packed.trained_tokens,
        "masked_tokens": packed.masked_tokens,
        **masked_shares(packed.fresh_members),
        "credit_masked_tokens": packed.response_tokens - packed.masked_tokens - packed.trained_tokens,
        "sequence_tokens": packed.sequence_tokens,
    }


def zero_credit_group_share(packed: PackedBatch) -> float:
    """Return the share of groups without an anchor whose trained tokens all have advantage 0, for example because
    rewards are equal. An anchor, such as a stored success, is imitated whatever its advantage is.

    Groups without a trained token, whose tokens are all too old or masked by the credit, do not count.
    """
    trained = {one.group_index for one in packed.branches if one.num_trained_tokens}
    with_credit = {
        one.group_index
        for one in packed.branches
        if one.use is MemberUse.ANCHOR or one.advantages_L[one.trained_L].any()
    }
    return len(trained - with_credit) / max(1, len(trained))


def masked_shares(members: Sequence[MemberTokens]) -> dict[str, float]:
    """Return the shares of tokens that were masked because they are too old: of all members, of successes and of
    failures.

    Members with masked tokens still count in the group's baseline, so masking more tokens of the successes than of the
    failures, or the reverse, biases learning. `wholly_masked_..._share` is the share of members all of whose tokens are
    masked.
    """
    outcomes = {"success": [m for m in members if m.success], "failure": [m for m in members if not m.success]}
    return {
        "masked_share": _masked_share(members),
        **{f"masked_{name}_share": _masked_share(of_outcome) for name, of_outcome in outcomes.items()},
        **{
            f"wholly_masked_{name}_share": sum(m.masked_tokens == m.response_tokens > 0 for m in of_outcome)
            / max(1, len(of_outcome))
            for name, of_outcome in outcomes.items()
        },
    }


def _masked_share(members: Sequence[MemberTokens]) -> float:
    return sum(m.masked_tokens for m in members) / max(1, sum(m.response_tokens for m in members))
