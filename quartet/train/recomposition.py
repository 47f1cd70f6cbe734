"""Priority of a group's members by outcome and length (RoRecomp)."""

import numpy as np

from quartet.rounding import rounded_up


def priority(rewards_K: np.ndarray, lengths_K: np.ndarray, share: float) -> np.ndarray:
    """Return 1 at the priority members of one group, else 0: `share` of the successes, the shortest, and `share` of the
    failures, the longest, each rounded up.

    A success is a member above the mean reward. All members of a group without contrast have priority.
    """
    if np.ptp(rewards_K) == 0:
        return np.ones(len(rewards_K))
    kept_K, success_K = np.zeros(len(rewards_K)), rewards_K > rewards_K.mean()
    for members, sign in ((np.flatnonzero(success_K), 1), (np.flatnonzero(~success_K), -1)):
        ordered = members[np.argsort(sign * lengths_K[members], kind="stable")]
        kept_K[ordered[: rounded_up(share * len(members))]] = 1
    return kept_K
