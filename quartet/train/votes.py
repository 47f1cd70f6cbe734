"""Votes of a group on the right answer, for credits that train without rewards."""

from collections import Counter

import numpy as np

from quartet.train.credit_batch import CreditBatch


def vote(batch: CreditBatch) -> np.ndarray:
    """Return `[N]`: 1 for members with the most frequent answer of their group and role, and 0 for the others. Record
    the metrics of `MajorityVote`."""
    agreement_N = batch.over_roles(agreement, np.array(batch.answers_N))
    batch.metrics["vote_share"] = float(agreement_N.mean())
    batch.metrics["vote_reward"] = float(batch.rewards_N @ agreement_N / max(1.0, agreement_N.sum()))
    return agreement_N


def agreement(answers_K: np.ndarray) -> np.ndarray:
    """Return 1 for the answers of a group that equal its most frequent one, and 0 for the others."""
    answers = answers_K.tolist()
    votes = Counter(answer for answer in answers if answer).most_common(1)
    return np.array([float(bool(votes) and answer == votes[0][0]) for answer in answers])
