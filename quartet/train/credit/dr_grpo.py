"""Dr. GRPO, GRPO done right: no division by the standard deviation (Liu and others 2025, arXiv 2503.20783)."""

from quartet.train.baseline import centred
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class DrGrpo(Credit):
    """Advantage: reward - group mean, the same at every token of a rollout.

    Dividing by the standard deviation gives more weight to tasks that are nearly always or nearly never solved. The
    paper also divides the loss by a constant instead of the response length; `loss.aggregation = "fixed_divisor"` does
    this. With the default, `token_mean`, a token also weighs the same in short and long rollouts of a minibatch.
    """

    source = "Dr. GRPO, arXiv 2503.20783"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(centred, batch.rewards_N))
