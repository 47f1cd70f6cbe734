"""vLLM by its offline interface, if it is installed. Its engine is another process and its prefix cache is on, as by
default."""

import os
from typing import Any

from transformers import PreTrainedModel

from benchmarks.engine_contenders.base import MAX_CONTEXT_TOKENS, Workload


class Vllm:
    """Contender that runs the turns in batches, since vLLM's offline interface returns when all requests have ended."""

    name = "vllm"

    def __init__(self, model: PreTrainedModel, folder: str, threads: int) -> None:
        """Load `model` from `folder`. Raises `ImportError` if vLLM is not installed."""
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from vllm import LLM  # type: ignore[import-not-found]

        dtype = str(model.dtype).removeprefix("torch.")
        self._llm: Any = LLM(
            folder, skip_tokenizer_init=True, dtype=dtype, max_model_len=MAX_CONTEXT_TOKENS, enforce_eager=True
        )

    def run(self, workload: Workload, seed: int) -> None:
        from vllm import SamplingParams  # type: ignore[import-not-found]

        sampling = SamplingParams(
            temperature=1.0, max_tokens=workload.new_tokens, ignore_eos=True, logprobs=0, detokenize=False
        )
        histories = workload.prompts
        for turn in range(workload.turns):
            prompts = [{"prompt_token_ids": history} for history in histories]
            outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
            responses = [list(output.outputs[0].token_ids) for output in outputs]
            assert all(len(response) == workload.new_tokens for response in responses)
            if turn + 1 < workload.turns:
                observed = [conversation[turn] for conversation in workload.observations]
                histories = [a + b + c for a, b, c in zip(histories, responses, observed, strict=True)]

    def close(self) -> None:
        """End the engine's process, which would keep its memory otherwise."""
        self._llm.llm_engine.engine_core.shutdown()
