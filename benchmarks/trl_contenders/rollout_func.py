"""TRL with a hand-written `rollout_func`, which steps the environments of a batch at the same time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from trl.chat_template_utils import parse_response
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmarks.trl_contenders import base
from benchmarks.trl_contenders.base import Job, Run
from benchmarks.trl_contenders.conversation import between, opening
from benchmarks.trl_contenders.environment import DeskTools
from benchmarks.trl_contenders.trainer import train
from benchmarks.workload import Workload, read_workload

Messages = list[dict[str, str]]


def run(job: Job, folder: Path) -> Run:
    """Train with TRL. A prompt of the dataset is the seed of a task, since a rollout function receives only prompts."""
    rows = [{"prompt": [{"role": "user", "content": str(seed)}]} for seed in range(base.TASKS)]
    with ThreadPoolExecutor(base.ROLLOUTS_PER_STEP) as pool:
        rollouts = Rollouts(read_workload(job.workload), pool)
        return train(job, folder, rows, rollout_func=rollouts, reward_funcs=given_reward)


def given_reward(env_reward: Sequence[float], **columns: Any) -> list[float]:
    return list(env_reward)


class Rollouts:
    """Rollout function. Each turn is one `generate` for all unfinished rollouts, then their steps in threads."""

    __name__ = "rollouts"

    def __init__(self, workload: Workload, pool: ThreadPoolExecutor) -> None:
        self._workload, self._pool = workload, pool

    def __call__(self, prompts: list[Messages], trainer: GRPOTrainer) -> dict[str, list[Any] | None]:
        tokenizer: Any = trainer.processing_class
        desks = [DeskTools(self._workload) for _ in prompts]
        firsts = [desk.reset(seed=int(prompt[-1]["content"])) for desk, prompt in zip(desks, prompts, strict=True)]
        prompt_ids = [opening(tokenizer, text) for text in firsts]
        ids = [list(first) for first in prompt_ids]
        masks: list[list[int]] = [[] for _ in prompts]
        live = list(range(len(prompts)))
        while live:
            responses = _generate(trainer, [ids[index] for index in live])
            for index, response in zip(live, responses, strict=True):
                ids[index] += response
                masks[index] += [1] * len(response)
            calls = dict(zip(live, map(_element, [tokenizer] * len(live), responses), strict=True))
            live = [index for index in live if calls[index] and len(masks[index]) < base.MAX_CONTEXT_TOKENS // 2]
            pages = self._pool.map(DeskTools.click, [desks[index] for index in live], [calls[index] for index in live])
            for index, text in zip(live, pages, strict=True):
                observed = between(tokenizer, text)
                ids[index] += observed
                masks[index] += [0] * len(observed)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [whole[len(first) :] for whole, first in zip(ids, prompt_ids, strict=True)],
            "logprobs": None,
            "env_mask": masks,
            "env_reward": [desk.get_reward() for desk in desks],
        }


def _element(tokenizer: Any, response: list[int]) -> str:
    """Return the element that the response clicks, by TRL's own parser; "" if it clicks nothing."""
    calls = parse_response(tokenizer, response, prefix=[]).get("tool_calls") or []
    return calls[0]["function"]["arguments"]["element"] if calls else ""


def _generate(trainer: GRPOTrainer, prompts: list[list[int]]) -> list[list[int]]:
    """Return one response per prompt, with its end token."""
    tokenizer: Any = trainer.processing_class
    inputs = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt")
    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model, torch.no_grad():
        whole = model.generate(**inputs, generation_config=trainer.generation_config)
    responses = whole[:, inputs["input_ids"].shape[1] :].tolist()
    end = tokenizer.eos_token_id
    return [ids[: ids.index(end) + 1] if end in ids else ids for ids in responses]
