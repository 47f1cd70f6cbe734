"""How much each token weighs in the loss. Decided over a whole minibatch, before it is cut into microbatches, so the
gradient does not depend on how it is cut."""

from collections import Counter
from collections.abc import Callable, Sequence

from quartet.train.packing import Branch


def token_mean(branches: Sequence[Branch]) -> list[float]:
    """Every trained token of the minibatch weighs the same: 1 / number of trained tokens."""
    total = sum(branch.num_trained_tokens for branch in branches)
    return [1 / total for _ in branches]


def sequence_mean(branches: Sequence[Branch]) -> list[float]:
    """Every trajectory weighs the same: the mean over its trained tokens (of all its branches), then the mean."""
    tokens: Counter[int] = Counter()
    for branch in branches:
        tokens[branch.trajectory_index] += branch.num_trained_tokens
    return [1 / (len(tokens) * tokens[branch.trajectory_index]) for branch in branches]


def branch_mean(branches: Sequence[Branch]) -> list[float]:
    """Every branch weighs the same: the mean over its trained tokens, then the mean."""
    return [1 / (len(branches) * branch.num_trained_tokens) for branch in branches]


AGGREGATIONS: dict[str, Callable[[Sequence[Branch]], list[float]]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "branch_mean": branch_mean,
}
"""From branches that all have trained tokens to the weight of each of their tokens, one number per branch."""
