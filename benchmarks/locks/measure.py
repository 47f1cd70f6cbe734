"""Probability that a policy opens held-out locks at the first try, computed exactly from the policy's probabilities."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import count, islice
from statistics import fmean

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.actions.taken import taken_action
from quartet.env.environment.locks import LOCKS, observe, row, solution
from quartet.policy.chat import Chat, exchanges
from quartet.policy.examples import Example, pad, padding_id
from quartet.policy.renderer import Renderer
from quartet.rollout.loop.base import AgentLoop
from quartet.train.sft import learned_logits
from quartet.types import Task, Turn

TASKS_PER_FAMILY = 8
ALL = "all"


class Measure:
    """Measure of success: at temperature 1, a lock opens at the first try with the product of the probabilities that
    the policy gives to the right presses. Means are over tasks, `all` is over all families."""

    def __init__(
        self, families: Sequence[str], first_seed: int, tokenizer: PreTrainedTokenizerBase, loop: AgentLoop
    ) -> None:
        renderer = Renderer(tokenizer)
        self._difficulties: list[str] = []  # one per task
        self._task_of_row: list[int] = []
        examples: list[Example] = []
        for family in families:
            for seed in islice(count(first_seed), TASKS_PER_FAMILY):
                turns = solution_turns(Task(env="locks", family=family, seed=seed), renderer, loop)
                self._task_of_row += [len(self._difficulties)] * len(turns)
                self._difficulties.append(LOCKS[family].difficulty)
                examples += turns
        self._batch = pad(examples, padding_id(tokenizer))

    @torch.inference_mode()
    def __call__(self, model: PreTrainedModel) -> dict[str, float]:
        """Return the probability of success by difficulty, and over `all` families."""
        logits_NV, targets_N = learned_logits(model, self._batch)
        logprobs_N = logits_NV.log_softmax(-1).gather(1, targets_N[:, None])[:, 0]
        logprobs_R = logprobs_N.reshape(len(self._task_of_row), -1).sum(1).double().numpy()
        chances = np.exp(np.bincount(self._task_of_row, weights=logprobs_R)).tolist()
        by_difficulty: dict[str, list[float]] = defaultdict(list)
        for difficulty, chance in zip(self._difficulties, chances, strict=True):
            by_difficulty[difficulty].append(chance)
        return {difficulty: fmean(values) for difficulty, values in by_difficulty.items()} | {ALL: fmean(chances)}


def solution_turns(task: Task, renderer: Renderer, loop: AgentLoop) -> list[Example]:
    """Return prompt and right press of every step of an episode without mistakes, with the prompts of the loop.

    A history has one conversation with all turns, or one for each turn, which ends with its press. All presses have the
    same number of tokens.
    """
    turns = [
        Turn(observation=observe(task, sign), call_index=step, response=press, actions=[taken_action(press)])
        for step, (sign, press) in enumerate(zip(row(task), solution(task), strict=True))
    ]
    conversations = [[*exchanges(Chat(messages), renderer)] for messages in loop.chats(turns)]
    if len(conversations) == len(turns):
        presses = [exchange for of_chat in conversations for exchange in of_chat[-1:]]
    else:
        (presses,) = conversations
    return [_example(exchange.prompt_ids, exchange.response_ids[:-1]) for exchange in presses]


def _example(prompt: list[int], press: list[int]) -> Example:
    """Return a press without the end token, which rollouts do not sample."""
    return Example([*prompt, *press], [False] * len(prompt) + [True] * len(press))
