"""UI-S1's credit: the sum of an advantage of the episode and an advantage of the turn (Lu and others 2025)."""

from functools import partial

from quartet.config.section import Fraction, PositiveFloat, Section
from quartet.train.baseline import normalised
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch, over_equal, to_come


class UiS1(Credit):
    """Advantage: `episode_weight` * A_episode + `turn_weight` * A_turn, equal within a call.

    A_episode is GRPO's advantage of the rollout's reward. A_turn compares the discounted return from a call on with the
    returns of the group's rollouts from their call with the same index: (return - mean) / (unbiased standard deviation
    + epsilon). A call that no other rollout reached has A_turn 0. With `episode_weight = 0` only the returns of turns
    count. The released code averages A_episode over calls, which gives long rollouts more weight in the baseline, and
    by default does not divide by the standard deviation. This credit follows the paper.
    """

    class Settings(Section):
        discount: Fraction = 0.5
        """Discount (gamma): a reward n calls later is multiplied by gamma^n."""
        turn_weight: PositiveFloat = 1.0
        """Factor on A_turn."""
        episode_weight: Fraction = 1.0
        """Factor on A_episode."""
        epsilon: PositiveFloat = 1e-6
        """Constant added to each standard deviation."""

    settings: Settings
    compares_totals = False
    source = "UI-S1, arXiv 2509.11543, semi-online policy optimization"

    def assign(self, batch: CreditBatch) -> None:
        settings, normalise = self.settings, partial(normalised, epsilon=self.settings.epsilon)
        episodes_N = batch.over_groups(normalise, batch.rewards_N)
        returns_C = batch.over_members(partial(to_come, discount=settings.discount), batch.rewards_C)
        turns_C = over_equal(normalise, (batch.groups_C, batch.places_C), returns_C)
        batch.returns_T[:] = returns_C[batch.calls_T]
        batch.assign_calls(settings.episode_weight * episodes_N[batch.members_C] + settings.turn_weight * turns_C)
