"""ARPO's credit of forked rollouts, in its hard form (Dong and others 2025)."""

from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class Arpo(Credit):
    """Advantage: the mean of GRPO's advantages of all rollouts that share a call; a call of one rollout has its own.

    A shared call is trained once, in the parent. With `grpo` it would have the advantage of the parent alone, as if the
    children had not followed from it. Without forks the result equals `grpo`. Replayed rollouts share nothing. The
    paper's soft form trains a shared call in each rollout, which sums to this mean times their number.
    """

    class Settings(Grpo.Settings):
        """Settings of `grpo`."""

    source = "ARPO, arXiv 2507.19849, hard advantage estimation"

    def assign(self, batch: CreditBatch) -> None:
        advantages_N = batch.over_groups(Grpo(self.settings).normalised, batch.rewards_N)
        batch.assign_calls(CallTree(batch).leaf_means(advantages_N))
