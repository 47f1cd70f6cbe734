"""Dr. MAS: advantages normalised per agent, over its turns (Feng and others 2026)."""

from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class DrMas(Credit):
    """Advantage: (reward - mean) / (standard deviation + epsilon) over all calls of the group's agents of one role.

    A call has the reward of its trajectory, so trajectories with many calls weigh more in the baseline of their role.
    With statistics over all agents, the squared norm of the gradient of agent k is multiplied by (variance_k + (mean_k
    - mean)^2) / variance; with statistics per role that factor is 1. An agent with one call in its group gets 0; the
    released code gives it the reward itself.
    """

    class Settings(Grpo.Settings):
        """Settings of `grpo`."""

    source = "Dr. MAS, arXiv 2602.08847"

    def assign(self, batch: CreditBatch) -> None:
        rewards_C = batch.rewards_N[batch.members_C]
        batch.assign_calls(batch.over_calls_of_roles(Grpo(self.settings).normalised, rewards_C))
