"""llama.cpp's server in the same process, asked over HTTP, if the package `xllamacpp` is installed. Its prompt cache is
on, as by default."""

import json
import math
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_contenders.base import MAX_CONTEXT_TOKENS, Workload

KV_CACHE_TYPES = {torch.float32: "GGML_TYPE_F32", torch.bfloat16: "GGML_TYPE_BF16"}


class LlamaCpp:
    """Contender that runs every conversation in a thread of its own; the server decodes all of them together."""

    name = "llama_cpp"

    def __init__(self, file: Path, dtype: torch.dtype, threads: int, slots: int) -> None:
        """Load the GGUF file, whose weights have this type. Raises `ImportError` if the package is not installed."""
        import xllamacpp  # type: ignore[import-not-found]

        self._server: Any = xllamacpp.Server(server_params(file, dtype, threads, slots))
        self._url = self._server.listening_address
        self._clients = ThreadPoolExecutor(slots)

    def run(self, workload: Workload, seed: int) -> None:
        conversations = zip(workload.prompts, workload.observations, strict=True)
        futures = [
            self._clients.submit(self._converse, prompt, observed, workload.new_tokens, seed + index)
            for index, (prompt, observed) in enumerate(conversations)
        ]
        for future in futures:
            future.result()

    def close(self) -> None:
        self._clients.shutdown()
        del self._server

    def _converse(self, prompt: list[int], observed: Sequence[list[int]], new_tokens: int, seed: int) -> None:
        history = self._complete(prompt, new_tokens, seed)
        for observation in observed:
            history = self._complete([*history, *observation], new_tokens, seed)

    def _complete(self, prompt: list[int], new_tokens: int, seed: int) -> list[int]:
        """Return the prompt and its response, sampled from the whole distribution with log-probs."""
        request = {"prompt": prompt, "n_predict": new_tokens, "ignore_eos": True, "seed": seed, "n_probs": 1}
        whole = {"temperature": 1.0, "samplers": ["temperature"], "return_tokens": True, "cache_prompt": True}
        body = json.dumps(request | whole).encode()
        asked = urllib.request.Request(f"{self._url}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as response:
            answer = json.load(response)
        tokens = answer["tokens"]
        assert len(tokens) == new_tokens, f"{len(tokens)} tokens instead of {new_tokens}"
        # Tokens of an unfinished UTF-8 character at the end have no log-prob in the answer.
        assert all(math.isfinite(one["logprob"]) for one in answer["completion_probabilities"])
        return [*prompt, *tokens]


def server_params(file: Path, dtype: torch.dtype, threads: int, slots: int) -> Any:
    """Return the server's parameters. Keys and values have the weights' type, as with the other contenders; llama.cpp's
    default is float16."""
    import xllamacpp  # type: ignore[import-not-found]

    params: Any = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_parallel, params.n_ctx = slots, slots * MAX_CONTEXT_TOKENS
    params.n_gpu_layers = 0
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type[KV_CACHE_TYPES[dtype]]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.kv_unified, params.warmup, params.ui, params.verbosity = False, False, False, -1
    return params
