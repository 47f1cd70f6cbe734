"""The embedded torch engine, called as the rollout service calls it, without HTTP."""

import asyncio

from transformers import PreTrainedModel

from benchmarks.engine_contenders.base import MAX_CONTEXT_TOKENS, Workload
from quartet.config import Engine
from quartet.engine.base import GenerateRequest
from quartet.engine.torch_engine import TorchEngine
from quartet.rollout.client import call_seed
from quartet.types import Sampling


class Ours:
    """Contender that runs every conversation in its own coroutine; conversations do not wait for each other."""

    name = "ours"

    def __init__(self, model: PreTrainedModel, threads: int, slots: int) -> None:
        self.model = model
        self.engine = TorchEngine(
            model, 0, Engine(max_slots=slots, max_context_tokens=MAX_CONTEXT_TOKENS, threads=threads)
        )

    def run(self, workload: Workload, seed: int) -> None:
        asyncio.run(self._run(workload, seed))

    def close(self) -> None:
        asyncio.run(self.engine.close())

    async def _run(self, workload: Workload, seed: int) -> None:
        await asyncio.gather(*(self._converse(workload, index, seed) for index in range(len(workload.prompts))))

    async def _converse(self, workload: Workload, index: int, seed: int) -> None:
        history = workload.prompts[index]
        for turn in range(workload.turns):
            request = GenerateRequest(
                request_id=f"{seed}/{index}/{turn}",
                prompt_ids=history,
                sampling=Sampling(max_tokens=workload.new_tokens, seed=call_seed(seed, f"{index}/{turn}")),
                stop_token_ids=[],
                conversation=f"{seed}/{index}",
            )
            result = await self.engine.generate(request)
            assert len(result.token_ids) == len(result.logprobs) == workload.new_tokens
            if turn + 1 < workload.turns:
                history = [*history, *result.token_ids, *workload.observations[index][turn]]
