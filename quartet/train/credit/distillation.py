"""On-policy distillation: a teacher's log-probs at the tokens that the policy sampled (2025)."""

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from quartet.config.section import PolicyPath, PositiveFloat, Section
from quartet.train.baseline import centred
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class Distillation(Credit):
    """Advantage: `coefficient` * (log pi_teacher - log pi) per token + `reward_weight` * (reward - group mean).

    The expected gradient of the first part is that of the reverse KL divergence per token, without later tokens
    (discount 0). log pi is the recorded log-prob; a token without one, such as a demonstrated one, has no first part.
    The first part needs no reward and no other member, so a group of one gives a gradient too.
    """

    class Settings(Section):
        teacher: PolicyPath = ""
        """Folder of the teacher, a policy with the same vocabulary, or the name of a shipped one."""
        coefficient: PositiveFloat = 1.0
        """Factor on the difference of log-probs."""
        reward_weight: Annotated[float, Field(ge=0)] = 0.0
        """Factor on the part from rewards; with 0 the policy learns from the teacher only."""

    settings: Settings
    needs = frozenset({"teacher"})
    compares_totals = False
    source = "Thinking Machines Lab 2025, On-policy distillation; reverse KL on the student's samples, arXiv 2306.13649"
    metrics = {"train/teacher_kl_nats": "nats: mean of log pi - log pi_teacher over the trained tokens"}

    @classmethod
    def reads_rewards(cls, settings: Any) -> bool:
        return settings.reward_weight > 0

    def assign(self, batch: CreditBatch) -> None:
        assert batch.teacher_logprobs_T is not None
        gaps_T = batch.teacher_logprobs_T - batch.logprobs_T
        known_T = np.isfinite(gaps_T)
        batch.assign_members(self.settings.reward_weight * batch.over_groups(centred, batch.rewards_N))
        batch.advantages_T[known_T] += self.settings.coefficient * gaps_T[known_T]
        batch.metrics["teacher_kl_nats"] = -float(gaps_T[known_T].sum() / max(1, known_T.sum()))
