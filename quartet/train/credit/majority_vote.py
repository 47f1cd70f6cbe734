"""TTRL: the group's majority answer is the label, so that training needs no right answers."""

from typing import Any

from quartet.train.baseline import normalised
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch
from quartet.train.votes import vote


class MajorityVote(Credit):
    """GRPO's advantage, with the reward 1 for members with the group's most frequent answer and 0 for the others.

    The answer is the last action, which `env.answer` selects in a data set. Members without an answer do not vote; the
    first of equally frequent answers wins. Members of a group in different roles vote, and are compared, separately.
    The environment's rewards only measure how often the labels are right.
    """

    source = "TTRL, arXiv 2504.16084, section 2.2; released reward manager"
    metrics = {
        "train/vote_share": "1: mean share of a group's members, in each role, that have the majority's answer",
        "train/vote_reward": "1: mean reward of these members: the accuracy of the labels, if it is correctness",
    }

    @classmethod
    def reads_rewards(cls, settings: Any) -> bool:
        return False

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_roles(lambda votes_K: normalised(votes_K, 1e-6), vote(batch)))
