"""GRPO's advantage from the rewards of turns (DeepSeekMath, arXiv 2402.03300, section 4.1.3, process supervision)."""

from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch, to_come


class GrpoTurns(Credit):
    """The sum of the normalised rewards of a token's own turn and of the turns after it.

    A turn's reward is normalised as `grpo` does it, over all turns of the group: (reward - mean) / (unbiased standard
    deviation + epsilon). With one turn per rollout it is `grpo`. A reward that belongs to no turn, a judge's for
    instance, counts as the last turn's.
    """

    class Knobs(Grpo.Knobs):
        """Those of `grpo`; `negative_weight` is a factor on normalised rewards below zero."""

    source = "DeepSeekMath, arXiv 2402.03300, section 4.1.3"

    def assign(self, batch: CreditBatch) -> None:
        normalised_C = batch.over_calls_of_groups(Grpo(self.knobs).normalised, batch.rewards_C)
        batch.assign_calls(batch.over_members(to_come, normalised_C))
