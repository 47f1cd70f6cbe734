"""DART's high-entropy steps: turns in which the policy was sure of itself are left out of the loss."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quartet.train.packing import Branch


def high_entropy_turns(
    branches: Sequence[Branch], entropies: Sequence[np.ndarray], percentile: float, *, spare_replayed: bool = False
) -> list[Branch]:
    """Train only turns whose mean token entropy H_t is at or above the group's percentile tau (arXiv 2509.23866).

    `entropies` holds, per branch, the entropy of each trained token in nats, of the full distribution at temperature 1.
    The percentile (DART: 20) is over all turns of the group that have a token to train, interpolated linearly; ties
    with it are kept. Advantages are estimated before, so they are not touched; what is masked leaves the loss and its
    denominator, and a branch without a trained token is left out.

    With `spare_replayed` all turns of a stored success train, and the percentile is over the group's own turns. A
    success that begins to be learned has less entropy than the failures around it: DART's rule drops it then.
    """
    means: dict[int, list[float]] = defaultdict(list)
    turns = [_turn_means(branch, values) for branch, values in zip(branches, entropies, strict=True)]
    for branch, of_branch in zip(branches, turns, strict=True):
        if not (spare_replayed and branch.replayed):
            means[branch.group_index].extend(of_branch.values())
    thresholds = {group: np.percentile(values, percentile) for group, values in means.items()}
    selected: list[Branch] = []
    for branch, of_branch in zip(branches, turns, strict=True):
        if spare_replayed and branch.replayed:
            selected.append(branch)
            continue
        kept = [turn for turn, mean in of_branch.items() if mean >= thresholds[branch.group_index]]
        trained_L = branch.trained_L & np.isin(branch.turns_L, kept)
        if trained_L.any():
            selected.append(replace(branch, trained_L=trained_L))
    return selected


def _turn_means(branch: Branch, entropies: np.ndarray) -> dict[int, float]:
    """Mean entropy of each turn of the branch, by the turn's number."""
    turns = branch.turns_L[branch.trained_L]
    return {int(turn): float(entropies[turns == turn].mean()) for turn in np.unique(turns)}
