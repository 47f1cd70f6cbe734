"""Weights of tokens in the loss. They are computed over a whole minibatch before it is cut into microbatches, so the
gradient does not depend on the cut."""

from collections import Counter
from collections.abc import Callable, Sequence

from quartet.config import Loss
from quartet.train.packing import Branch
from quartet.types import MemberUse

COMPARED = frozenset({MemberUse.FRESH, MemberUse.REPLAY})
"""Uses of members that are compared within their group and get credit."""


def token_weights(branches: Sequence[Branch], section: Loss) -> list[float]:
    """Return the weight of each token, one number per branch.

    Members of different uses are normalised separately: `loss.aggregation` averages over the tokens, branches or
    trajectories of one use as if the others were absent. The weights of its tokens sum to the use's share. Anchors sum
    to 1. Fresh and replayed members together sum to 1: replayed ones to `loss.replay_share`, fresh ones to the rest; if
    one kind is absent, the other sums to 1. Without a `replay_share` the two have one common mean.
    """
    weigh, weights = AGGREGATIONS[section.aggregation], [0.0] * len(branches)
    for uses, share in _shares(branches, section.replay_share):
        places = [place for place, branch in enumerate(branches) if branch.use in uses]
        for place, weight in zip(places, weigh([branches[place] for place in places]), strict=True):
            weights[place] = share * weight
    return weights


def _shares(branches: Sequence[Branch], replay_share: float | None) -> list[tuple[frozenset[MemberUse], float]]:
    """Return the uses that are normalised together with the sum of their weights; only uses in the minibatch."""
    present = {branch.use for branch in branches}
    anchors = [(frozenset({MemberUse.ANCHOR}), 1.0)] if MemberUse.ANCHOR in present else []
    if replay_share is None or not present >= COMPARED:
        return [(COMPARED, 1.0), *anchors] if present & COMPARED else anchors
    return [(frozenset({MemberUse.FRESH}), 1 - replay_share), (frozenset({MemberUse.REPLAY}), replay_share), *anchors]


def token_mean(branches: Sequence[Branch]) -> list[float]:
    """Weigh every trained token the same: 1 / number of trained tokens."""
    total = sum(branch.num_trained_tokens for branch in branches)
    return [1 / total for _ in branches]


def sequence_mean(branches: Sequence[Branch]) -> list[float]:
    """Weigh every trajectory the same: the mean over its trained tokens (of all its branches), then over
    trajectories."""
    tokens: Counter[int] = Counter()
    for branch in branches:
        tokens[branch.trajectory_index] += branch.num_trained_tokens
    return [1 / (len(tokens) * tokens[branch.trajectory_index]) for branch in branches]


def branch_mean(branches: Sequence[Branch]) -> list[float]:
    """Weigh every branch the same: the mean over its trained tokens, then over branches."""
    return [1 / (len(branches) * branch.num_trained_tokens) for branch in branches]


AGGREGATIONS: dict[str, Callable[[Sequence[Branch]], list[float]]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "branch_mean": branch_mean,
}
"""Functions from branches, all with trained tokens, to the weight of each of their tokens: one number per branch."""
