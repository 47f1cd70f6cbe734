"""GRPO's advantage within a role, as M-GRPO uses for its main agent and its sub-agents (2025)."""

from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class GrpoRoles(Credit):
    """Advantage: (reward - mean) / (standard deviation + epsilon) over the group's rollouts in the same role.

    Roles with different reward levels, such as a solver and its judge, have separate baselines. A member is one
    trajectory: one role in one rollout. With one role the result equals `grpo`. A role that only one rollout of the
    group has gives 0. The released trainer compares sub-agents in the order of arrival, across tasks; here only
    sub-agents of the same task are compared.
    """

    class Settings(Grpo.Settings):
        """Settings of `grpo`."""

    source = "M-GRPO, arXiv 2511.13288"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_roles(Grpo(self.settings).normalised, batch.rewards_N))
