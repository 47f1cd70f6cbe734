"""GRPO's advantage from the rewards of turns (DeepSeekMath, arXiv 2402.03300, section 4.1.3, process supervision)."""

from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch, to_come


class GrpoTurns(Credit):
    """Advantage: the sum of the normalised rewards of a token's own turn and of later turns.

    A turn's reward is normalised as in `grpo`, over all turns of the group: (reward - mean) / (unbiased standard
    deviation + epsilon). With one turn per rollout the result equals `grpo`. A reward outside turns, such as a judge's,
    counts for the last turn.
    """

    class Settings(Grpo.Settings):
        """Settings of `grpo`; `negative_weight` multiplies normalised rewards below zero."""

    compares_totals = False
    source = "DeepSeekMath, arXiv 2402.03300, section 4.1.3"

    def assign(self, batch: CreditBatch) -> None:
        normalised_C = batch.over_calls_of_groups(Grpo(self.settings).normalised, batch.rewards_C)
        batch.assign_calls(batch.over_members(to_come, normalised_C))
