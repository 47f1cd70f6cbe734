"""Input and output of credit methods: arrays over members, calls and tokens.

Shapes: N members, C calls, T tokens. They are sorted by group, then by member, by call and by position in the call. The
members are the rollouts (`quartet.types.GroupMember`) that count in their group's baseline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from quartet.types import Call


@dataclass(eq=False, kw_only=True)
class CreditBatch:
    """Inputs of a credit method, and its outputs `advantages_T`, `returns_T`, `mask_T` and `metrics`.

    The calls are all calls of the members. The tokens are the sampled tokens of branches with at least one trained
    token.
    """

    rollout_ids_N: np.ndarray
    groups_N: np.ndarray
    """Index of the member's group in the batch, ascending."""
    rewards_N: np.ndarray
    """Total reward of the rollout, float64."""
    truncated_N: np.ndarray
    """True for rollouts that a limit of turns or tokens ended."""
    num_calls_N: np.ndarray
    answers_N: Sequence[str]
    """Last action of the member in its environment's notation, which is the answer in a data set; empty for none."""
    roles_N: Sequence[str]
    """Role of the member in its rollout."""
    parents_N: np.ndarray
    """Index, among the N members, of the rollout from which the member was forked. -1 if the member was not forked, if
    its parent is not in the batch, or if the member is replayed, since the parent of an imported rollout may be in
    another run."""
    fork_calls_N: np.ndarray
    """Index, among the member's calls, of the last call that it shares with its parent; -1 where `parents_N` is -1. The
    call has the same index in the parent."""
    replayed_N: np.ndarray
    """True for stored rollouts that joined the group as replays."""
    members_C: np.ndarray
    """Index of the call's member among the N members."""
    calls: Sequence[Call]
    """The C calls."""
    rewards_C: np.ndarray
    """Reward of the turns that resulted from the call, float64. A member's reward outside of turns is added to its last
    call, so that the rewards of a member's calls sum to the member's reward."""
    calls_T: np.ndarray
    """Index of the token's call among the C calls."""
    logprobs_T: np.ndarray
    """Log-probs recorded at sampling; `RECOMPUTED` at tokens whose recorded log-prob must not be used."""
    mask_T: np.ndarray
    """Output: True at tokens to train. Tokens that are too old are False from the start and stay masked."""
    entropies_T: np.ndarray | None = None
    """Entropies in nats, from a forward pass: NaN at tokens that are too old; None if no credit method needs them."""
    reference_logprobs_T: np.ndarray | None = None
    """Log-probs under the reference policy; NaN and None as for `entropies_T`."""
    teacher_logprobs_T: np.ndarray | None = None
    """Log-probs under the teacher; NaN and None as for `entropies_T`."""
    values_T: np.ndarray | None = None
    """Critic's estimate of the return, made before each token; NaN and None as for `entropies_T`."""
    end_values_N: np.ndarray | None = None
    """Critic's estimate of the return after the member's last token; 0 if that token is not trained, None as for
    `entropies_T`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Output: metrics that the part declares, without the prefix `train/`."""
    num_tokens_N: np.ndarray = field(init=False)
    """Number of tokens that the member's calls sampled, with those that it shares with its parent or that are too old,
    float64."""
    groups_C: np.ndarray = field(init=False)
    """Index of the call's group in the batch."""
    places_C: np.ndarray = field(init=False)
    """Index of the call among its member's calls."""
    members_T: np.ndarray = field(init=False)
    """Index of the token's member among the N members."""
    advantages_T: np.ndarray = field(init=False)
    """Output: advantages, float64, initially 0."""
    returns_T: np.ndarray = field(init=False)
    """Output: returns, float64, initially the rewards of the token's call and of the member's later calls, summed. NaN
    at tokens whose value is not to be trained."""

    def __post_init__(self) -> None:
        tokens_C = [len(call.response_ids) for call in self.calls]
        self.num_tokens_N = np.bincount(self.members_C, tokens_C, minlength=len(self.rewards_N))
        self.groups_C, self.members_T = self.groups_N[self.members_C], self.members_C[self.calls_T]
        self.places_C = np.arange(len(self.calls)) - (self.num_calls_N.cumsum() - self.num_calls_N)[self.members_C]
        self.advantages_T = np.zeros(len(self.calls_T))
        self.add_rewards(np.zeros(len(self.rewards_N)))

    def add_rewards(self, rewards_N: np.ndarray) -> None:
        """Add a reward to each member, at its last call, and renew the returns."""
        self.rewards_N = self.rewards_N + rewards_N
        last_C = np.flatnonzero(np.diff(self.members_C, append=-1))
        self.rewards_C = self.rewards_C.copy()
        self.rewards_C[last_C] += rewards_N[self.members_C[last_C]]
        self.returns_T = self.over_members(to_come, self.rewards_C)[self.calls_T]

    def assign_members(self, advantages_N: np.ndarray) -> None:
        """Assign to each token the advantage of its member."""
        self.advantages_T[:] = advantages_N[self.members_T]

    def assign_calls(self, advantages_C: np.ndarray) -> None:
        """Assign to each token the advantage of its call."""
        self.advantages_T[:] = advantages_C[self.calls_T]

    def member_means(self, values_T: np.ndarray | None) -> np.ndarray:
        """Return the mean of a column over each member's tokens `[N]`, not finite if it has none or one is missing.

        A column is None only if the credit's `needs` lacks it.
        """
        assert values_T is not None, "the credit's `needs` lacks this column"
        size = len(self.rewards_N)
        sums_N = np.bincount(self.members_T, weights=values_T, minlength=size)
        with np.errstate(invalid="ignore"):
            return sums_N / np.bincount(self.members_T, minlength=size)

    def over_groups(self, function: Callable[..., np.ndarray], *columns_N: np.ndarray) -> np.ndarray:
        """Apply a function to the members of each group, and return its results: `[N]`."""
        return piecewise(function, self.groups_N, *columns_N)

    def over_roles(self, function: Callable[..., np.ndarray], *columns_N: np.ndarray) -> np.ndarray:
        """Apply a function to the members of each group that have the same role, and return its results: `[N]`."""
        return over_equal(function, (self.groups_N, np.array(self.roles_N)), *columns_N)

    def over_calls_of_groups(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """Apply a function to the calls of each group, and return its results: `[C]`."""
        return piecewise(function, self.groups_C, *columns_C)

    def over_calls_of_roles(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """Apply a function to the calls of the members of each group that have the same role, and return its results:
        `[C]`."""
        return over_equal(function, (self.groups_C, np.array(self.roles_N)[self.members_C]), *columns_C)

    def over_members(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """Apply a function to the calls of each member, and return its results: `[C]`."""
        return piecewise(function, self.members_C, *columns_C)

    def over_trained_tokens(self, function: Callable[..., np.ndarray], *columns_T: np.ndarray) -> np.ndarray:
        """Apply a function to the trained tokens of each member, and return its results, 0 at other tokens: `[T]`."""
        values_T, owners = np.zeros(len(self.calls_T)), self.members_T[self.mask_T]
        values_T[self.mask_T] = piecewise(function, owners, *(column_T[self.mask_T] for column_T in columns_T))
        return values_T


def to_come(rewards_K: np.ndarray, discount: float = 1.0) -> np.ndarray:
    """Return for each of a member's K calls or tokens the sum of its own reward and of all later rewards: `[K]`.

    A reward that is n calls or tokens later is multiplied by `discount` to the power of n.
    """
    sums = accumulate(rewards_K[::-1].tolist(), lambda later, reward: reward + discount * later)
    return np.array(list(sums), dtype=np.float64)[::-1]


def piecewise(function: Callable[..., np.ndarray], owners: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """Apply a function to each run of entries with the same owner, and return its results, concatenated.

    `owners` must be ascending.
    """
    if not len(owners):
        return np.zeros(0)
    borders = np.flatnonzero(np.diff(owners)) + 1
    parts = zip(*(np.split(column, borders) for column in columns), strict=True)
    return np.concatenate([function(*part) for part in parts])


def over_equal(function: Callable[..., np.ndarray], keys: Sequence[np.ndarray], *columns: np.ndarray) -> np.ndarray:
    """Apply a function to each set of entries whose keys are all equal, and return its results at the places of the
    entries."""
    order = np.lexsort(keys)
    changes = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    owners = np.concatenate([[0], changes.cumsum()])[: len(order)]
    values = np.zeros(len(order))
    values[order] = piecewise(function, owners, *(column[order] for column in columns))
    return values
