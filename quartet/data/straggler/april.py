"""APRIL, active partial rollouts: more groups than a batch needs; what is unfinished when it is full is recycled."""

import math

from quartet.data.ledger import Ledger
from quartet.data.straggler.base import KeepGoing
from quartet.types import GroupState


class April(KeepGoing):
    """Rollouts rest from the moment a batch is full until the policy that is made of it is served (arXiv 2509.18521).

    They go on then from the tokens they have, before new ones start, so a long rollout is late and not lost. Unlike
    the released code, groups that are finished beyond the batch stay for the next one, and every token keeps its own
    log-prob and version.
    """

    def groups_ahead(self, groups: int) -> int:
        return math.ceil(groups * self._recipe.stragglers.april.over_provision)

    def rests(self, ledger: Ledger) -> bool:
        groups = ledger.queue_sizes().groups
        full = groups[GroupState.TRAINABLE] >= self._recipe.train.groups_per_batch
        return full or groups[GroupState.CLAIMED] > 0 or not ledger.latest_is_settled()
