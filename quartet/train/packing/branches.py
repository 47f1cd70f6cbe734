"""Packing of a batch of groups into branches: append-only token sequences with the values that the loss needs.

A call extends a branch if the call's prompt begins with all tokens of that branch; otherwise the call starts a new
branch. An agent loop that keeps the whole conversation gives one branch per trajectory; a loop that rewrites its
context in each turn gives one branch per turn.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from quartet.errors import QuartetError
from quartet.policy.picture_number import with_picture_numbers
from quartet.types import Batch, Call, GroupMember, Media, MemberUse, ReplayRule, Trajectory

NO_VERSION = np.iinfo(np.int64).max
"""Version of tokens that no policy sampled, such as prompts."""
RECOMPUTED = np.inf
"""Log-prob that marks tokens whose recorded log-prob must not be used. It cannot be a real log-prob, as these are at
most 0, and unlike NaN it does not hide an engine's error."""
ANY_VERSION = np.iinfo(np.int64).min
"""Version of demonstrated tokens, which have no age."""


@dataclass(frozen=True, eq=False)
class Branch:
    """One training sequence of L tokens. Values at tokens that were not sampled have no meaning."""

    trajectory_index: int
    """Index of the branch's trajectory in the batch, counting countable members in the order of the groups."""
    group_index: int
    """Index of the branch's group in the batch."""
    use: MemberUse
    """Use of the trajectory in the batch."""
    prompt_tokens: int
    """Number of tokens before the first response token. The response token may be borrowed from a parent rollout."""
    ids_L: np.ndarray
    trained_L: np.ndarray
    """True at response tokens that are trained: their lag is at most `max_lag`, and credit does not mask them."""
    rollout_logprobs_L: np.ndarray
    """Log-probs recorded at sampling. `RECOMPUTED` where the trainer's log-probs at the start of the train step replace
    them: for the replay rules `recompute` and `anchor`, for demonstrations, and for calls whose training prompt is not
    the prompt that they were sampled from."""
    temperatures_L: np.ndarray
    turns_L: np.ndarray
    """Index of the call, within its trajectory, that sampled the token; -1 at tokens that were not sampled."""
    lags_L: np.ndarray
    """Lag of the token in train steps; 0 if no policy sampled the token."""
    advantages_L: np.ndarray
    """Advantages, float32; 0 until `quartet.train.assign` has assigned credit."""
    returns_L: np.ndarray
    """Returns, float32; 0 until `quartet.train.assign` has assigned credit. NaN at tokens whose value is not
    trained."""
    media: tuple[Media, ...] = ()
    """Pictures whose placeholders are among the tokens."""
    role_index: int = 0
    """Index in the batch of the trajectory's role in its rollout."""

    @cached_property
    def content(self) -> np.ndarray:
        """Model input as numbers `[L]`: token ids, and at placeholders the number of their picture."""
        return np.array(with_picture_numbers(self.ids_L.tolist(), self.media)) if self.media else self.ids_L

    @property
    def num_tokens(self) -> int:
        return len(self.ids_L)

    @property
    def num_trained_tokens(self) -> int:
        return int(self.trained_L.sum())


@dataclass(frozen=True)
class MemberTokens:
    """Token counts of a fresh member. A member whose tokens are all masked still counts in the group's baseline."""

    success: bool
    response_tokens: int
    masked_tokens: int


@dataclass(frozen=True)
class PackedBatch:
    """Training sequences of one batch, and counts for metrics."""

    branches: list[Branch]
    """Branches with at least one trained token."""
    num_trajectories: int
    num_branches: int
    response_tokens: int
    masked_tokens: int
    """Number of response tokens that are not trained because their lag exceeds `max_lag`."""
    fresh_members: list[MemberTokens]
    """Token counts of the members that were not added by replay."""
    lag_histogram: dict[int, int]
    """Lag in train steps -> number of fresh trajectories."""
    credit_metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the credit methods, without the prefix `train/`."""

    @property
    def trained_tokens(self) -> int:
        return sum(branch.num_trained_tokens for branch in self.branches)

    @property
    def sequence_tokens(self) -> int:
        return sum(branch.num_tokens for branch in self.branches)


def pack_batch(batch: Batch, max_lag: int) -> PackedBatch:
    """Join the calls of all countable members into branches. Raises `QuartetError` for a call that cannot be trained.

    Tokens with a lag above `max_lag` (train steps) are masked, except in replayed members, whose lag was checked when
    they joined the group.
    """
    branches: list[Branch] = []
    members: list[GroupMember] = []
    fresh: list[MemberTokens] = []
    roles: dict[str, int] = {}
    for group_index, member in countable_members(batch):
        member_lags = _lags(batch, member.trajectory)
        too_old = [version for version, lag in member_lags.items() if lag > max_lag] if member.replay is None else []
        drafts = _draft_branches(member.trajectory.calls)
        own = [draft.freeze(len(members), group_index, member.use, member_lags, too_old) for draft in drafts]
        role_index = roles.setdefault(member.trajectory.role, len(roles))
        own = [replace(branch, role_index=role_index) for branch in own]
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
    """Return the lag of each policy version that sampled tokens of a trajectory."""
    return {version: batch.ancestry.lag(version, batch.start_version) for version in trajectory.versions}


def countable_members(batch: Batch) -> Iterator[tuple[int, GroupMember]]:
    """Yield (index of the group, member) for all countable members, replayed ones included.

    `Branch.trajectory_index` counts members in this order.
    """
    for group_index, group in enumerate(batch.groups):
        yield from ((group_index, member) for member in group.members if member.trajectory.status.countable)


def _without_logprobs(branch: Branch) -> Branch:
    """Return a branch whose recorded log-probs are replaced by `RECOMPUTED`.

    The trainer's log-probs at the start of the train step take their place, so importance weights are 1.
    """
    return replace(branch, rollout_logprobs_L=np.full_like(branch.rollout_logprobs_L, RECOMPUTED))


@dataclass
class _Draft:
    """Branch to which calls can still be added."""

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
        """Add the part of the call's prompt that is not in the branch yet, then the call's response."""
        prompt_ids, own = call.trained_prompt_ids, call.own_response
        unsampled, count = len(prompt_ids) - len(self.logprobs), len(call.response_ids)
        context = unsampled + count - len(own)
        self.ids, self.media = prompt_ids + call.response_ids, call.media
        # Log-probs that were sampled after another prompt are not those of the trained sequence.
        recorded = [] if call.train_prompt_ids else own.logprobs
        self.logprobs += [0.0] * context + (recorded or [RECOMPUTED] * len(own))
        self.versions += [NO_VERSION] * context + (own.versions or [ANY_VERSION] * len(own))
        self.temperatures += [1.0] * unsampled + [call.sampling.temperature] * count
        self.turns += [-1] * unsampled + [number if own else -1] * count

    def freeze(
        self,
        trajectory_index: int,
        group_index: int,
        use: MemberUse,
        lags: Mapping[int, int],
        too_old: Sequence[int],
    ) -> Branch:
        versions_L = np.array(self.versions)
        lags_L = np.zeros(len(versions_L), dtype=np.int64)
        for version, lag in lags.items():
            lags_L[versions_L == version] = lag
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
            lags_L=lags_L,
            advantages_L=np.zeros(len(self.ids), dtype=np.float32),
            returns_L=np.zeros(len(self.ids), dtype=np.float32),
            media=tuple(self.media),
        )


def _draft_branches(calls: Sequence[Call]) -> list[_Draft]:
    """Join calls into branches. Each call extends the longest branch that it fits, so conversations may be interleaved.

    A call whose response tokens are all borrowed from a parent rollout is context only. A branch that has only such
    calls is left out.
    """
    drafts: list[_Draft] = []
    for number, call in enumerate(calls):
        own = len(call.own_response)
        if not call.response_ids:
            continue
        if own and not (call.prompt_ids and call.sampling.whole):
            raise QuartetError(
                "a call with an empty prompt, or one that was sampled greedily or from a part of the distribution "
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
