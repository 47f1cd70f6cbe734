"""Input and output of credit: rewards of members and calls, facts of tokens, and the values assigned to tokens.

N members, C calls and T tokens, in the order of groups, of members within a group, of calls within a member, and of
tokens within a call. Members are those of `quartet.types.GroupMember` that count in their group's baseline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from quartet.types import Call


@dataclass(eq=False, kw_only=True)
class CreditBatch:
    """Inputs of credit, and its outputs `advantages_T`, `returns_T` and `mask_T`.

    Calls are all calls of the members; tokens are the sampled ones of branches with at least one trained token.
    """

    rollout_ids_N: np.ndarray
    groups_N: np.ndarray
    """Index of the member's group in the batch, ascending."""
    rewards_N: np.ndarray
    """Total reward of the rollout, float64."""
    num_calls_N: np.ndarray
    roles_N: Sequence[str]
    """Role of the member in its rollout."""
    parents_N: np.ndarray
    """Index among the N of the rollout that this one was forked from. -1 if it was not forked, if the parent is not in
    the batch, and for replayed members: an imported one names a parent of another run."""
    fork_calls_N: np.ndarray
    """Index of the last call shared with the parent, the same in both; -1 where `parents_N` is -1."""
    replayed_N: np.ndarray
    """True for stored rollouts that joined the group."""
    members_C: np.ndarray
    """Index of the call's member among the N."""
    calls: Sequence[Call]
    """The C calls."""
    rewards_C: np.ndarray
    """Reward of the turns that resulted from each call, float64. Reward outside turns is added to the last call, so the
    calls of a member sum to its reward."""
    calls_T: np.ndarray
    """Index of the token's call among the C."""
    logprobs_T: np.ndarray
    """Log-probs recorded at sampling; `RECOMPUTED` where none is valid."""
    mask_T: np.ndarray
    """Output. True at tokens to train; tokens that are too old start as False and stay masked."""
    entropies_T: np.ndarray | None = None
    """Entropies in nats. Results of passes are NaN at tokens that are too old, and None if no part needs the pass."""
    reference_logprobs_T: np.ndarray | None = None
    groups_C: np.ndarray = field(init=False)
    members_T: np.ndarray = field(init=False)
    """Index of the token's member among the N."""
    advantages_T: np.ndarray = field(init=False)
    """Output, float64; initially 0."""
    returns_T: np.ndarray = field(init=False)
    """Output, float64; initially the sum of the rewards of the token's own call and of later calls."""

    def __post_init__(self) -> None:
        self.groups_C, self.members_T = self.groups_N[self.members_C], self.members_C[self.calls_T]
        self.advantages_T = np.zeros(len(self.calls_T))
        self.returns_T = self.over_members(to_come, self.rewards_C)[self.calls_T]

    def assign_members(self, advantages_N: np.ndarray) -> None:
        """Assign to every token the advantage of its member."""
        self.advantages_T[:] = advantages_N[self.members_T]

    def assign_calls(self, advantages_C: np.ndarray) -> None:
        """Assign to every token the advantage of its call."""
        self.advantages_T[:] = advantages_C[self.calls_T]

    def over_groups(self, function: Callable[..., np.ndarray], *columns_N: np.ndarray) -> np.ndarray:
        """Return `[N]`: the function's results for the members of each group."""
        return _piecewise(function, self.groups_N, columns_N)

    def over_calls_of_groups(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """Return `[C]`: the function's results for the calls of each group."""
        return _piecewise(function, self.groups_C, columns_C)

    def over_members(self, function: Callable[..., np.ndarray], *columns_C: np.ndarray) -> np.ndarray:
        """Return `[C]`: the function's results for the calls of each member."""
        return _piecewise(function, self.members_C, columns_C)


def to_come(rewards_K: np.ndarray) -> np.ndarray:
    """Return `[K]`: for each of a member's K calls, the sum of its reward and those of later calls."""
    return rewards_K[::-1].cumsum()[::-1]


def _piecewise(function: Callable[..., np.ndarray], owners: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Apply a function to the parts of columns that have the same owner; owners are ascending."""
    if not len(owners):
        return np.zeros(0)
    borders = np.flatnonzero(np.diff(owners)) + 1
    parts = zip(*(np.split(column, borders) for column in columns), strict=True)
    return np.concatenate([function(*part) for part in parts])
