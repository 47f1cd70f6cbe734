"""Batches of the shapes that runs have: rollouts of very different lengths, groups that share a prompt, trees of
forks."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.trainer_contenders.base import EPSILON, VOCABULARY
from quartet.train.assign import assign
from quartet.train.credit.grpo import Grpo
from quartet.train.packing.branches import Branch, pack_batch
from quartet.types import (
    Batch,
    Call,
    FinishReason,
    Group,
    GroupMember,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
)

RESPONSE_TOKENS, OBSERVATION_TOKENS = 32, 41
"""Tokens per turn, as in `benchmarks.against_trl`."""
Random = np.random.Generator


def variable(rollouts: int) -> Batch:
    """Return groups of 8 with prompts of 60 tokens; responses have a median of 180 tokens and a long tail."""
    random, groups = np.random.default_rng(0), []
    for _ in range(rollouts // 8):
        prompt = random_ids(random, 60)
        lengths = np.clip(random.lognormal(np.log(180), 0.9, 8), 16, 1000).astype(int)
        groups.append([single_turn(random, prompt, length) for length in lengths])
    return batch_of(groups)


def shared_prompt(rollouts: int) -> Batch:
    """Return groups of 8 that share a prompt of 500 tokens; responses have 40 to 200 tokens."""
    random, groups = np.random.default_rng(1), []
    for _ in range(rollouts // 8):
        prompt = random_ids(random, 500)
        groups.append([single_turn(random, prompt, length) for length in random.integers(40, 200, 8)])
    return batch_of(groups)


def tree(rollouts: int) -> Batch:
    """Return trees of 32 leaves of 8 turns. A fork leaves an earlier rollout before its last turn or its last but
    one, so it shares at least 86 % of its tokens with that rollout. Of a fork, only the tokens that it adds are
    trained."""
    random, groups = np.random.default_rng(2), []
    turn = RESPONSE_TOKENS + OBSERVATION_TOKENS
    length = 209 + 8 * turn - OBSERVATION_TOKENS
    for _ in range(rollouts // 32):
        members, group = [random_ids(random, length)], list[Trajectory]()
        group.append(_turns(random, members[0], 0))
        for _ in range(31):
            own = RESPONSE_TOKENS + turn * int(random.integers(2))
            members.append(np.append(members[random.integers(len(members))][:-own], random_ids(random, own)))
            group.append(_turns(random, members[-1], length - own))
        groups.append(group)
    return batch_of(groups)


BATCHES: dict[str, Callable[[int], Batch]] = {"variable": variable, "shared_prompt": shared_prompt, "tree": tree}
"""Functions that return a batch with a number of rollouts, a multiple of 32."""


def prepared(batch: Batch) -> list[Branch]:
    """Return the branches of a batch with the advantages of GRPO, one branch per rollout."""
    return assign(batch, pack_batch(batch, max_lag=0), [Grpo(Grpo.Settings(epsilon=EPSILON))], {}).branches


def attention_pairs(branches: Sequence[Branch]) -> int:
    """Return the number of pairs (token, token to which it attends). Pairs that branches share count once."""
    depths = {branch.ids_L[: end + 1].tobytes(): end + 1 for branch in branches for end in range(branch.num_tokens)}
    return sum(depths.values())


def random_ids(random: Random, count: int) -> np.ndarray:
    return random.integers(3, VOCABULARY, count)


def single_turn(random: Random, prompt: np.ndarray, length: int) -> Trajectory:
    return _trajectory(random, [_call(prompt, random_ids(random, length))])


def _turns(random: Random, ids_L: np.ndarray, borrowed: int) -> Trajectory:
    """Return a rollout of 8 turns with a prompt of 209 tokens; the first `borrowed` tokens belong to its parent."""
    starts = [209 + turn * (RESPONSE_TOKENS + OBSERVATION_TOKENS) for turn in range(8)]
    calls = [_call(ids_L[:start], ids_L[start : start + RESPONSE_TOKENS], borrowed) for start in starts]
    return _trajectory(random, calls)


def _call(prompt: np.ndarray, response: np.ndarray, borrowed: int = 0) -> Call:
    """Return a call without recorded log-probs: the trainer uses its own, as the other contenders do."""
    return Call(
        prompt_ids=prompt.tolist(),
        response=TokenColumns(token_ids=response.tolist()),
        borrowed=min(borrowed, len(prompt) + len(response)),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )


TASK = Task(env="bandit", family="arms", seed=0)


def _trajectory(random: Random, calls: list[Call]) -> Trajectory:
    reward = float(random.normal())
    return Trajectory(
        task=TASK, status=Status.COMPLETED, calls=calls, turns=[], rewards={"task": reward}, success=reward > 0
    )


def batch_of(groups: Sequence[Sequence[Trajectory]]) -> Batch:
    numbered = [
        Group(
            group_id=number,
            task=TASK,
            members=[GroupMember(rollout_id=100 * number + place, trajectory=one) for place, one in enumerate(group)],
        )
        for number, group in enumerate(groups)
    ]
    return Batch(batch_id=1, attempt=1, train_step=1, start_version=0, groups=numbered)
