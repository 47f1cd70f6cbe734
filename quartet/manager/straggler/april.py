"""APRIL, active partial rollouts: more groups than a batch needs; what is unfinished when it is full is recycled."""

import math
from typing import Annotated

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.types import GroupState


class April(StragglerRule):
    """Rollouts rest from the moment a batch is full until the policy that is made of it is served (arXiv 2509.18521).

    They go on then from the tokens they have, before new ones start, so a long rollout is late and not lost. Unlike
    the released code, groups that are finished beyond the batch stay for the next one, and every token keeps its own
    log-prob and version.
    """

    class Knobs(Section):
        over_provision: Annotated[float, Field(ge=1)] = 2.0
        """Groups that are started, per group that is trained."""
        max_recycles: Annotated[int, Field(ge=0)] | None = None
        """A rollout goes back to the queue with the tokens it has at most this often, then it is cancelled. Unset, it
        is `admission.max_lag`: one that is recycled more often has tokens that are too old. Recalls before its first
        token do not count."""

    knobs: Knobs
    source = "APRIL, arXiv 2509.18521"

    @classmethod
    def check(cls, knobs: Knobs, recipe: Recipe) -> None:
        admission = recipe.admission
        if admission.schedule != "batch_synchronous" or admission.max_lag < 1:
            raise ConfigError(
                "the straggler rule april needs admission.schedule batch_synchronous and, because recycled tokens are "
                "older, admission.max_lag >= 1"
            )
        if admission.on_late == "wait":
            raise ConfigError("the straggler rule april and admission.on_late wait would wait for each other")

    def groups_ahead(self, groups: int) -> int:
        return math.ceil(groups * self.knobs.over_provision)

    @property
    def max_recycles(self) -> int:
        return super().max_recycles if self.knobs.max_recycles is None else self.knobs.max_recycles

    def rests(self, ledger: Ledger) -> bool:
        groups = ledger.queue_sizes().groups
        full = groups[GroupState.TRAINABLE] >= self.recipe.train.groups_per_batch
        return full or groups[GroupState.CLAIMED] > 0 or not ledger.latest_is_settled()
