"""The whole batch as credit sees it: rewards of members and calls, facts of tokens, and what is assigned to tokens.

N members, C calls and T tokens, in the order of groups, of members within a group, of calls within a member, and of
tokens within a call. Members are those of `quartet.types.GroupMember` that count in their group's baseline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from quartet.types import Call


@dataclass(eq=False, kw_only=True)
class CreditBatch:
    """What credit may depend on, and `advantages_T`, `returns_T` and `mask_T`, which it writes.

    Calls are all calls of the members; tokens are the sampled ones of branches with at least one trained token.
    """

    rollout_ids_N: np.ndarray
    groups_N: np.ndarray
    """Number of the member's group in the batch, ascending."""
    rewards_N: np.ndarray
    """float64, the whole reward of the rollout."""
    num_calls_N: np.ndarray
    roles_N: Sequence[str]
    """Role that the member played in its rollout."""
    parents_N: np.ndarray
    """Place among the N of the rollout that this one was forked from; -1 where it began at the start, where the parent
    is not in the batch, and for replayed members: an imported one names a parent of another run."""
    fork_calls_N: np.ndarray
    """Index, among its own calls and its parent's, of the last call that both share; -1 where `parents_N` is."""
    replayed_N: np.ndarray
    """True for stored rollouts that joined the group."""
    members_C: np.ndarray
    """Place of the call's member among the N."""
    calls: Sequence[Call]
    """The C calls."""
    rewards_C: np.ndarray
    """float64, of the turns that came of each call. What a rollout was given beside its turns stands at its last call,
    so the calls of a member sum to its reward."""
    calls_T: np.ndarray
    """Place of the token's call among the C."""
    logprobs_T: np.ndarray
    """As recorded at sampling; `RECOMPUTED` where none counts."""
    mask_T: np.ndarray
    """Written. True at tokens that are to be trained; those that are too old are False at first and stay out."""
    entropies_T: np.ndarray | None = None
    """In nats. Results of passes are NaN at tokens that are too old, and None where no part asked for the pass."""
    reference_logprobs_T: np.ndarray | None = None
    groups_C: np.ndarray = field(init=False)
    members_T: np.ndarray = field(init=False)
    """Place of the token's member among the N."""
    advantages_T: np.ndarray = field(init=False)
    """Written, float64; 0 at first."""
    returns_T: np.ndarray = field(init=False)
    """Written, float64; at first the sum of the rewards of the token's own call and of those that come after it."""

    def __post_init__(self) -> None:
        self.groups_C, self.members_T = self.groups_N[self.members_C], self.members_C[self.calls_T]
        self.advantages_T = np.zeros(len(self.calls_T))
        self.returns_T = self.over_members(to_come, self.rewards_C)[self.calls_T]

    def assign_members(self, advantages_N: np.ndarray) -> None:
        """Give every token the advantage of its member."""
        self.advantages_T[:] = advantages_N[self.members_T]

    def assign_calls(self, advantages_C: np.ndarray) -> None:
        """Give every token the advantage of its call."""
        self.advantages_T[:] = advantages_C[self.calls_T]

    def over_groups(self, function: Callable[..., np.ndarray], *columns_N: np.ndarray) -> np.ndarray:
        """`[N]`: the function's results for the members of one group after the other."""
        return _piecewise(function, self.groups_N, columns_N)

    def over_calls_of_groups(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """`[C]`: the function's results for all calls of one group after the other."""
        return _piecewise(function, self.groups_C, columns_C)

    def over_members(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """`[C]`: the function's results for the calls of one member after the other."""
        return _piecewise(function, self.members_C, columns_C)


def to_come(rewards_K: np.ndarray) -> np.ndarray:
    """`[K]`: at each of a member's K calls the sum over itself and those after it."""
    return rewards_K[::-1].cumsum()[::-1]


def _piecewise(function: Callable[..., np.ndarray], owners: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Apply a function to the parts of columns that have the same owner; owners are ascending."""
    if not len(owners):
        return np.zeros(0)
    borders = np.flatnonzero(np.diff(owners)) + 1
    parts = zip(*(np.split(column, borders) for column in columns), strict=True)
    return np.concatenate([function(*part) for part in parts])
