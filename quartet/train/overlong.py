"""Treatment of rollouts that are too long: DAPO's soft overlong punishment, and masking of truncated rollouts."""

import numpy as np

from quartet.train.call_tree import CallTree
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class OverlongPenalty(Credit):
    """Lower the reward of long rollouts before credit is assigned (DAPO, arXiv 2503.14476, equation 13).

    The penalty is 0 up to `max_tokens - cache_tokens` response tokens, falls linearly to -1 at `max_tokens`, and is -1
    beyond. Tokens that a forked rollout shares with its parent count too, since the penalty is for the length of the
    whole rollout. The penalty is added to the last call's reward. The stored reward does not change, so filters and
    metrics do not either.
    """

    def __init__(self, max_tokens: int, cache_tokens: int) -> None:
        super().__init__(None)
        self._max_tokens, self._cache_tokens = max_tokens, cache_tokens

    def assign(self, batch: CreditBatch) -> None:
        free = self._max_tokens - self._cache_tokens
        batch.add_rewards(np.clip((free - batch.num_tokens_N) / self._cache_tokens, -1.0, 0.0))


class TruncatedMask(Credit):
    """Leave the tokens of truncated rollouts out of the loss; their rewards stay in the baseline (DAPO, section 3.4).
    Calls that are shared with a fork that was not truncated are trained.

    The loss is averaged over the other rollouts, also by `fixed_divisor`. The filter `overlong` removes truncated
    rollouts from the baseline too.
    """

    def __init__(self) -> None:
        super().__init__(None)

    def assign(self, batch: CreditBatch) -> None:
        CallTree(batch).leave_out(batch, batch.truncated_N)
