"""ARPO's credit of forked rollouts, in its hard form (Dong and others 2025)."""

from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch


class Arpo(Credit):
    """Advantage of a call: the mean of GRPO's advantages over the rollouts that share the call.

    A shared call is trained once, in the parent. With `grpo` it would have the parent's advantage, which ignores the
    children that also followed from it. Without forks the result equals `grpo`. Replayed rollouts share no calls. The
    paper's soft form trains a shared call in each rollout, which sums to this mean times their number.
    """

    class Settings(Grpo.Settings):
        """Settings of `grpo`."""

    source = "ARPO, arXiv 2507.19849, hard advantage estimation"

    def assign(self, batch: CreditBatch) -> None:
        advantages_N = batch.over_groups(Grpo(self.settings).normalised, batch.rewards_N)
        batch.assign_calls(CallTree(batch).leaf_means(advantages_N))
