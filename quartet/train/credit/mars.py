"""MARS's credit: returns of turns, compared within a role (Yuan and others 2025)."""

from functools import partial

from quartet.config.section import Fraction, PositiveFloat, Section
from quartet.train.baseline import centred, normalised
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, to_come


class Mars(Credit):
    """Advantage: (discounted return from the call on - its role's mean), normalised over all calls of the batch.

    The mean is over the calls of the group's rollouts in the same role, so the players of a zero-sum game have separate
    baselines. The released code computes the mean over a batch, for two players with fixed names and over distinct
    values; here a role may have any name, and rollouts of other tasks do not count. The released code also subtracts a
    player's mean from the rewards of single turns before it sums them to returns; this step is left out. For a role
    with one call in its group, the advantage is 0 before the batch's mean is subtracted.
    """

    class Settings(Section):
        discount: Fraction = 1.0
        """Discount (gamma): a reward n calls later is multiplied by gamma^n."""
        epsilon: PositiveFloat = 1e-8
        """Constant added to the batch's standard deviation."""

    settings: Settings
    compares_totals = False
    source = "MARS, arXiv 2510.15414, turn-level advantages and agent-specific normalisation"

    def assign(self, batch: CreditBatch) -> None:
        returns_C = batch.over_members(partial(to_come, discount=self.settings.discount), batch.rewards_C)
        batch.returns_T[:] = returns_C[batch.calls_T]
        batch.assign_calls(normalised(batch.over_calls_of_roles(centred, returns_C), self.settings.epsilon))
