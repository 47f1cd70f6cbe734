"""From a batch of groups to branches: append-only token sequences with everything the loss needs per token.

A call whose prompt is an earlier prompt + its response + more extends that branch; any other call starts a new one.
A loop that keeps the whole conversation gives one branch per trajectory, one that rewrites its context one per turn.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from quartet.errors import QuartetError
from quartet.train.picture_number import picture_number
from quartet.types import Batch, Call, GroupMember, Media, MemberUse, ReplayRule, Trajectory

NO_VERSION = np.iinfo(np.int64).max
"""Stands where no policy sampled the token (prompts)."""
RECOMPUTED = np.inf
"""Stands where no recorded log-prob counts. No probability is above 1; NaN would hide what an engine got wrong."""
ANY_VERSION = np.iinfo(np.int64).min
"""The version of a demonstrated token, which has no age."""


@dataclass(frozen=True, eq=False)
class Branch:
    """One training sequence of L tokens. Values at tokens that were not sampled are placeholders."""

    trajectory_index: int
    """Position of its trajectory in the batch: countable members in the order of the groups."""
    group_index: int
    """Position of its group in the batch."""
    use: MemberUse
    """Use of its trajectory in the batch."""
    prompt_tokens: int
    """Tokens before the first response token, which may be a borrowed one."""
    ids_L: np.ndarray
    trained_L: np.ndarray
    """True at response tokens that are young enough."""
    rollout_logprobs_L: np.ndarray
    """`RECOMPUTED` where the old log-prob of the trainer shall stand for it: rules `recompute` and `anchor`,
    demonstrations."""
    temperatures_L: np.ndarray
    turns_L: np.ndarray
    """Number of the call, within its trajectory, that sampled the token; -1 at tokens that were not sampled."""
    advantages_L: np.ndarray
    """float32; 0 until `quartet.train.assign` has assigned credit. So are `returns_L`."""
    returns_L: np.ndarray
    media: tuple[Media, ...] = ()
    """Pictures that some of its tokens stand for."""

    @cached_property
    def content(self) -> np.ndarray:
        """`[L]`: what the model reads. Sequences that begin with the same numbers have the same hidden states there:
        token ids, and at placeholders the number of their picture."""
        content_L = self.ids_L.copy() if self.media else self.ids_L
        for one in self.media:
            content_L[one.offset : one.offset + one.num_placeholders] = picture_number(one)
        return content_L

    @property
    def num_tokens(self) -> int:
        return len(self.ids_L)

    @property
    def num_trained_tokens(self) -> int:
        return int(self.trained_L.sum())


@dataclass(frozen=True)
class MemberTokens:
    """Mask the tokens of a member that are too old. A wholly masked one stays in the group's baseline."""

    success: bool
    response_tokens: int
    masked_tokens: int


@dataclass(frozen=True)
class PackedBatch:
    """The training sequences of one batch and what is worth knowing about them."""

    branches: list[Branch]
    """Only those with at least one trained token."""
    num_trajectories: int
    num_branches: int
    response_tokens: int
    masked_tokens: int
    """Response tokens left out because they are more than `max_lag` versions old."""
    fresh_members: list[MemberTokens]
    """Those that replay did not add."""
    lag_histogram: dict[int, int]
    """Lag -> number of trajectories."""

    @property
    def trained_tokens(self) -> int:
        return sum(branch.num_trained_tokens for branch in self.branches)

    @property
    def sequence_tokens(self) -> int:
        return sum(branch.num_tokens for branch in self.branches)


def pack_batch(batch: Batch, max_lag: int) -> PackedBatch:
    """Thread the calls of all countable members into branches. Raises `QuartetError` on what cannot be trained.

    Tokens more than `max_lag` versions old are masked, but not those of replayed members: their age was judged when
    they joined.
    """
    branches: list[Branch] = []
    members: list[GroupMember] = []
    fresh: list[MemberTokens] = []
    for group_index, member in countable_members(batch):
        too_old = _too_old(batch, member.trajectory, max_lag) if member.replay is None else []
        drafts = _draft_branches(member.trajectory.calls)
        own = [draft.freeze(len(members), group_index, member.use, too_old) for draft in drafts]
        branches += own if member.replay in (None, ReplayRule.STORED) else map(_without_logprobs, own)
        if member.replay is None:
            fresh.append(_tokens_of(member.trajectory, own))
        members.append(member)
    trajectories = [member.trajectory for member in members]
    response_tokens = sum(trajectory.num_response_tokens for trajectory in trajectories)
    lags = (max(_lags(batch, member.trajectory).values(), default=None) for member in members if member.replay is None)
    return PackedBatch(
        branches=[branch for branch in branches if branch.num_trained_tokens],
        num_trajectories=len(trajectories),
        num_branches=len(branches),
        response_tokens=response_tokens,
        masked_tokens=response_tokens - sum(branch.num_trained_tokens for branch in branches),
        fresh_members=fresh,
        lag_histogram=dict(sorted(Counter(lag for lag in lags if lag is not None).items())),
    )


def _tokens_of(trajectory: Trajectory, branches: Sequence[Branch]) -> MemberTokens:
    count = trajectory.num_response_tokens
    trained = sum(branch.num_trained_tokens for branch in branches)
    return MemberTokens(success=trajectory.success, response_tokens=count, masked_tokens=count - trained)


def _lags(batch: Batch, trajectory: Trajectory) -> dict[int, int]:
    """Lag by policy version, of a trajectory's tokens."""
    return {version: batch.ancestry.lag(version, batch.start_version) for version in trajectory.versions}


def _too_old(batch: Batch, trajectory: Trajectory, max_lag: int) -> list[int]:
    """The versions of a trajectory's tokens that leave the loss."""
    return [version for version, lag in _lags(batch, trajectory).items() if lag > max_lag]


def countable_members(batch: Batch) -> Iterator[tuple[int, GroupMember]]:
    """Yield (position of the group, member) of all members that count, stored ones too; their order numbers them."""
    for group_index, group in enumerate(batch.groups):
        yield from ((group_index, member) for member in group.members if member.trajectory.status.countable)


def _without_logprobs(branch: Branch) -> Branch:
    """Without its recorded log-probs: the old ones of the trainer stand for them, so the importance weight is 1."""
    return replace(branch, rollout_logprobs_L=np.full_like(branch.rollout_logprobs_L, RECOMPUTED))


@dataclass
class _Draft:
    """A branch while calls are still added to it."""

    prompt_tokens: int
    ids: list[int]
    media: list[Media] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    def extended_by(self, call: Call) -> bool:
        same_tokens = call.trained_prompt_ids[: len(self.ids)] == self.ids
        return same_tokens and call.media[: len(self.media)] == self.media

    def append(self, number: int, call: Call) -> None:
        """Add the new part of the call's prompt, then its response."""
        prompt_ids, own = call.trained_prompt_ids, call.own_response
        unsampled, count = len(prompt_ids) - len(self.logprobs), len(call.response_ids)
        context = unsampled + count - len(own)
        self.ids, self.media = prompt_ids + call.response_ids, call.media
        self.logprobs += [0.0] * context + (own.logprobs or [RECOMPUTED] * len(own))
        self.versions += [NO_VERSION] * context + (own.versions or [ANY_VERSION] * len(own))
        self.temperatures += [1.0] * unsampled + [call.sampling.temperature] * count
        self.turns += [-1] * unsampled + [number if own else -1] * count

    def freeze(self, trajectory_index: int, group_index: int, use: MemberUse, too_old: Sequence[int]) -> Branch:
        versions_L = np.array(self.versions)
        return Branch(
            trajectory_index=trajectory_index,
            group_index=group_index,
            use=use,
            prompt_tokens=self.prompt_tokens,
            ids_L=np.array(self.ids),
            trained_L=~np.isin(versions_L, [NO_VERSION, *too_old]),
            rollout_logprobs_L=np.array(self.logprobs, dtype=np.float32),
            temperatures_L=np.array(self.temperatures, dtype=np.float32),
            turns_L=np.array(self.turns),
            advantages_L=np.zeros(len(self.ids), dtype=np.float32),
            returns_L=np.zeros(len(self.ids), dtype=np.float32),
            media=tuple(self.media),
        )


def _draft_branches(calls: Sequence[Call]) -> list[_Draft]:
    """Thread calls into branches. Interleaved conversations are followed: the longest branch that fits is extended.

    Calls that are wholly borrowed are context: a branch of nothing else is left out.
    """
    drafts: list[_Draft] = []
    for number, call in enumerate(calls):
        own = len(call.own_response)
        if not call.response_ids:
            continue
        if own and not (call.prompt_ids and call.sampling.whole):
            raise QuartetError(
                "a call with an empty prompt, or sampled greedily or from a part of the distribution "
                f"({call.sampling}), has no log-probs to train on",
                "set rollout.temperature above 0; greedy and truncated sampling are for evaluation",
            )
        fitting = [draft for draft in drafts if draft.extended_by(call)]
        draft = max(fitting, key=lambda fit: len(fit.ids), default=None)
        if draft is None:
            draft = _Draft(prompt_tokens=len(call.trained_prompt_ids), ids=[])
            drafts.append(draft)
        draft.append(number, call)
    return [draft for draft in drafts if max(draft.turns) >= 0]
