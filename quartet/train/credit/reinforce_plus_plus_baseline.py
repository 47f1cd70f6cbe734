"""REINFORCE++ with the group's mean as its baseline, whitened over the batch (Hu 2025)."""

from quartet.train.baseline import centred, whitened
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class ReinforcePlusPlusBaseline(Credit):
    """Advantage: reward - group mean, normalised over all tokens of the batch but those too old.

    A rollout weighs in the mean and the standard deviation of the batch by its number of trained tokens. In a group of
    one, or with equal rewards, the value is 0 before the batch's mean is subtracted. The paper also adds a KL term to
    the loss (`loss.terms`). ProRL and BroRL use this advantage too.
    """

    source = "REINFORCE++, arXiv 2501.03262, the variant with a baseline"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(centred, batch.rewards_N))
        batch.advantages_T[:] = whitened(batch.advantages_T, batch.mask_T)
