"""APRIL, active partial rollouts: start more groups than a batch needs; when the batch is full, recycle unfinished
rollouts."""

from typing import Annotated

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.rounding import rounded_up
from quartet.types import GroupState


class April(StragglerRule):
    """Pause rollouts from the time a batch is full until the policy trained on it is served (arXiv 2509.18521).

    Paused rollouts then continue from their sampled tokens, before new rollouts start, so a long rollout is delayed and
    not lost. Unlike in the released code, finished groups that the batch does not need are kept for the next batch, and
    every token keeps its own log-prob and version.
    """

    class Settings(Section):
        over_provision: Annotated[float, Field(ge=1)] = 2.0
        """Number of groups started per group trained."""
        max_recycles: Annotated[int, Field(ge=0)] | None = None
        """Maximum number of times that a rollout is requeued with its tokens; then it is cancelled. If unset, the
        maximum is `admission.max_lag`, since after more times the tokens would be too old. Recalls before the first
        token do not count."""

    settings: Settings
    source = "APRIL, arXiv 2509.18521"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        admission = recipe.admission
        if admission.schedule != "batch_synchronous" or admission.max_lag < 1:
            raise ConfigError(
                "the straggler rule april needs admission.schedule batch_synchronous, and admission.max_lag >= 1 "
                "because paused rollouts continue from tokens of an older policy",
                "set both, or choose another straggler rule",
            )
        if admission.on_late == "wait":
            raise ConfigError(
                "the straggler rule april and admission.on_late = wait would wait for each other",
                "set admission.on_late to mask or drop, or choose another straggler rule",
            )

    def groups_ahead(self, groups: int) -> int:
        return rounded_up(groups * self.settings.over_provision)

    @property
    def max_recycles(self) -> int:
        return super().max_recycles if self.settings.max_recycles is None else self.settings.max_recycles

    def pauses_training(self, ledger: Ledger) -> bool:
        groups = ledger.statistics.groups_by_state()
        full = groups[GroupState.TRAINABLE] >= self.recipe.train.groups_per_batch
        return full or groups[GroupState.CLAIMED] > 0 or not ledger.policies.latest_is_settled()
