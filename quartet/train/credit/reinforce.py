"""REINFORCE without a baseline (Williams 1992)."""

from functools import partial

from quartet.config.section import Fraction, Section
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, to_come


class Reinforce(Credit):
    """Advantage: the discounted sum of the rewards of a token's own call and of later calls.

    The gradient is unbiased for any reward, with a higher variance than with a baseline. Members do not affect each
    other, so a group of one gives a gradient, and equal rewards do not give 0.
    """

    class Settings(Section):
        discount: Fraction = 1.0
        """Discount (gamma): a reward n calls later is multiplied by gamma^n."""

    settings: Settings
    compares_totals = False
    source = "Williams 1992, Simple statistical gradient-following algorithms, Machine Learning 8, section 4"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_calls(batch.over_members(partial(to_come, discount=self.settings.discount), batch.rewards_C))
        batch.returns_T[:] = batch.advantages_T
