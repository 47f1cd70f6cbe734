"""Weights of tokens in the loss.

The weights are computed over a whole minibatch before it is divided into microbatches, so the gradient does not depend
on the division.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from quartet.config import Loss
from quartet.train.packing.branches import Branch
from quartet.types import MemberUse

COMPARED = frozenset({MemberUse.FRESH, MemberUse.REPLAY})
"""Uses of the members that are compared with their group and get credit. Anchors are missing: they are only
imitated."""


def token_weights(branches: Sequence[Branch], section: Loss) -> list[float]:
    """Return for each branch the weight of each of its tokens.

    Uses of members are normalised separately: `loss.aggregation` averages over the tokens, branches or trajectories of
    one use, and the weights of the use's tokens sum to the use's share. The share of anchors is 1. The share of
    replayed members is `loss.replay_share`, and the share of fresh members is 1 - `loss.replay_share`; if only one of
    the two uses occurs, its share is 1. Without `loss.replay_share`, fresh and replayed members are normalised
    together, with share 1. With a fixed divisor the weights do not sum to 1, and are multiplied by the shares.
    """
    weigh, weights = _aggregation(section), [0.0] * len(branches)
    for uses, share in _shares(branches, section.replay_share):
        places = [place for place, branch in enumerate(branches) if branch.use in uses]
        for place, weight in zip(places, weigh([branches[place] for place in places]), strict=True):
            weights[place] = share * weight
    return weights


def _aggregation(section: Loss) -> Callable[[Sequence[Branch]], list[float]]:
    if section.divisor_tokens is not None:
        return partial(fixed_divisor, section.divisor_tokens)
    return AGGREGATIONS[section.aggregation]


def _shares(branches: Sequence[Branch], replay_share: float | None) -> list[tuple[frozenset[MemberUse], float]]:
    """Return the sets of uses that are normalised together, each with its share. Uses that no branch has are left
    out."""
    present = {branch.use for branch in branches}
    anchors = [(frozenset({MemberUse.ANCHOR}), 1.0)] if MemberUse.ANCHOR in present else []
    if replay_share is None or not present >= COMPARED:
        return [(COMPARED, 1.0), *anchors] if present & COMPARED else anchors
    return [(frozenset({MemberUse.FRESH}), 1 - replay_share), (frozenset({MemberUse.REPLAY}), replay_share), *anchors]


def token_mean(branches: Sequence[Branch]) -> list[float]:
    """Give every trained token the same weight: 1 / number of trained tokens."""
    total = sum(branch.num_trained_tokens for branch in branches)
    return [1 / total for _ in branches]


def sequence_mean(branches: Sequence[Branch]) -> list[float]:
    """Give every trajectory the same weight: average over its trained tokens (of all its branches), then over
    trajectories. The few tokens of a late fork therefore weigh more than those of its parent, which has the shared
    ones."""
    tokens: Counter[int] = Counter()
    for branch in branches:
        tokens[branch.trajectory_index] += branch.num_trained_tokens
    return [1 / (len(tokens) * tokens[branch.trajectory_index]) for branch in branches]


def branch_mean(branches: Sequence[Branch]) -> list[float]:
    """Give every branch the same weight: average over its trained tokens, then over branches."""
    return [1 / (len(branches) * branch.num_trained_tokens) for branch in branches]


def fixed_divisor(divisor_tokens: int, branches: Sequence[Branch]) -> list[float]:
    """Give every token the same weight, whatever the lengths of the trajectories: sum over a trajectory's trained
    tokens, divide by `divisor_tokens`, then average over the minibatch's trajectories.

    Trajectories without a trained token (too old, or left out by a mask) are not among them.
    """
    trajectories = {branch.trajectory_index for branch in branches}
    return [1 / (len(trajectories) * divisor_tokens) for _ in branches]


AGGREGATIONS: dict[str, Callable[[Sequence[Branch]], list[float]]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "branch_mean": branch_mean,
}
"""Functions that return one number per branch: the weight of each of the branch's trained tokens."""
