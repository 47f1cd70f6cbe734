"""First passes of the trainer on a GPU, before it claims a batch: they compile layers and kernels.

Compiling can take longer than the supervisor waits for a heartbeat, or than a batch is leased, so it is done in a
thread beside which the trainer sends heartbeats.
"""

from collections.abc import Callable
from concurrent import futures

import numpy as np
import torch

from quartet.errors import SetupError
from quartet.on_progress import no_progress
from quartet.train.packing.branches import Branch
from quartet.train.step import Learner
from quartet.types import MemberUse

BEAT_SECONDS = 0.5
MAX_SECONDS = 1800
"""Time after which the passes count as hung."""
PROMPT_TOKENS, TOKENS = 8, 16


def warm_up(learner: Learner, on_progress: Callable[[], None]) -> None:
    """Score two branches that share a prompt, with and without gradients, under all policies. Weights and optimizer do
    not change. `on_progress` is called all the while.

    Raises `SetupError` if the passes take longer than `MAX_SECONDS`.
    """
    with futures.ThreadPoolExecutor(1, thread_name_prefix="warm-up") as thread:
        passes = thread.submit(_passes, learner)
        for _ in range(int(MAX_SECONDS / BEAT_SECONDS)):
            done, _ = futures.wait([passes], timeout=BEAT_SECONDS)
            on_progress()
            if done:
                return passes.result()
        raise SetupError(
            f"the first passes on {learner.model.device} have taken {MAX_SECONDS} s",
            "look for other programs on the GPU and the processors; TORCH_COMPILE_DISABLE=1 leaves layers uncompiled",
        )


def _passes(learner: Learner) -> None:
    plan = learner.scorer.plan([_branch(place) for place in range(2)], 1, frozenset(), no_progress)
    for microbatch in plan[0]:
        scores = learner.scorer.score(microbatch)
        torch.autograd.backward([one.sum() for one in (scores.logprobs_T, scores.values_T) if one is not None])
    learner.optimizer.zero_grad(set_to_none=True)
    needed = {"entropies", *learner.frozen} | ({"values"} if learner.critic else set())
    learner.passes(needed, [_branch(place) for place in range(2)], no_progress)


def _branch(place: int) -> Branch:
    ids_L = np.arange(TOKENS) % 2
    ids_L[PROMPT_TOKENS:] = place
    zeros_L = np.zeros(TOKENS, dtype=np.float32)
    return Branch(
        trajectory_index=place,
        group_index=0,
        use=MemberUse.FRESH,
        prompt_tokens=PROMPT_TOKENS,
        ids_L=ids_L,
        trained_L=np.arange(TOKENS) >= PROMPT_TOKENS,
        rollout_logprobs_L=zeros_L,
        temperatures_L=np.ones(TOKENS, dtype=np.float32),
        turns_L=np.where(np.arange(TOKENS) >= PROMPT_TOKENS, 0, -1),
        lags_L=np.zeros(TOKENS, dtype=np.int64),
        advantages_L=zeros_L,
        returns_L=zeros_L,
    )
