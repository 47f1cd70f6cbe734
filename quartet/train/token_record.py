"""Keeps what a train step computes for each trained token, by rollout and call, for people who look at a rollout."""

import numpy as np
import torch

from quartet.observe.token_values import CallValues
from quartet.train.microbatch import Microbatch
from quartet.types import Batch


class TokenRecord:
    """Of one batch: the rollouts of its groups themselves, not the stored ones that joined them."""

    def __init__(self, batch: Batch) -> None:
        members = [member for group in batch.groups for member in group.members]
        countable = [member for member in members if member.trajectory.status.countable]
        self._rollouts = [member.rollout_id if member.replay is None else None for member in countable]
        self._calls: list[CallValues] = []

    def see(self, microbatch: Microbatch, old_logprobs_T: torch.Tensor, entropies_T: torch.Tensor) -> None:
        """Take over a microbatch of the first epoch."""
        values_2T = torch.stack([old_logprobs_T, entropies_T]).detach().float().cpu().numpy()
        start = 0
        for branch in microbatch.branches:
            end = start + branch.num_trained_tokens
            rollout_id = self._rollouts[branch.trajectory_index]
            if rollout_id is not None:
                turns_T = branch.turns_L[branch.trained_L]
                for call in np.unique(turns_T).tolist():
                    trained = branch.trained_L[branch.turns_L == call]
                    self._keep(rollout_id, call, trained, values_2T[:, start:end][:, turns_T == call])
            start = end

    def calls(self) -> list[CallValues]:
        """All calls with a trained token, in the order they were seen."""
        return self._calls

    def _keep(self, rollout_id: int, call: int, trained_R: np.ndarray, values_2T: np.ndarray) -> None:
        """`trained_R` is over the call's R response tokens, `values_2T` over those of them that were trained."""
        kept_2R = np.full((2, len(trained_R)), np.nan, dtype=np.float16)
        kept_2R[:, trained_R] = values_2T
        logprobs, entropies = kept_2R
        self._calls.append(
            CallValues(
                rollout_id=rollout_id, call_index=call, logprobs=logprobs.tobytes(), entropies=entropies.tobytes()
            )
        )
