"""Credits that a critic's values make: their common setting, and the value after a rollout's last token."""

from typing import Any

import numpy as np

from quartet.config.section import Section
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class ValueSettings(Section):
    """Settings of all credits with values."""

    bootstrap_truncated: bool = False
    """Value after the last token of a rollout that a limit of turns or tokens ended. If true, it is the critic's
    estimate, which takes another forward pass over the last branch of each rollout: right for a limit that only cuts
    the episode off (Pardo and others, arXiv 1712.00378). If false, it is 0, as in verl: right if the limit is part of
    the task."""


class ValueCredit(Credit):
    """Credit from the values of a critic."""

    Settings = ValueSettings
    needs = frozenset({"values"})
    compares_totals = False
    metrics = {"train/explained_variance": "1: share of the returns' variance that the values explain, at most 1"}

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        if settings.bootstrap_truncated:
            self.needs |= {"end_values"}

    def end_values(self, batch: CreditBatch) -> np.ndarray:
        """Return `[N]`: the value after each member's last token. It is 0 unless the member was truncated and
        `bootstrap_truncated` is set."""
        if batch.end_values_N is None:
            return np.zeros(len(batch.rewards_N))
        return np.where(batch.truncated_N, batch.end_values_N, 0.0)
