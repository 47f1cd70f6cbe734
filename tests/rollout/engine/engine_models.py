"""Tiny models of several architectures, requests, and what a full forward pass says about them."""

import asyncio
import random
from collections.abc import Callable

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from quartet.rollout.engine.base import GenerateRequest
from quartet.types import Sampling

VOCAB_SIZE = 512
MAX_CONTEXT_TOKENS = 256

_SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.15,  # wide enough that greedy choices are no ties
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "bos_token_id": None,
}


def make_model(architecture: str = "qwen3", seed: int = 0) -> PreTrainedModel:
    """A random model of two layers in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if architecture == "qwen3":
            return Qwen3ForCausalLM(Qwen3Config(**_SHAPE, head_dim=16)).eval()
        if architecture == "llama":
            return LlamaForCausalLM(LlamaConfig(**_SHAPE)).eval()
        config = GPT2Config(vocab_size=VOCAB_SIZE, n_embd=64, n_layer=2, n_head=4, n_positions=MAX_CONTEXT_TOKENS)
        config.initializer_range, config.eos_token_id, config.bos_token_id = 0.15, None, None
        return GPT2LMHeadModel(config).eval()


def make_requests(count: int, *, seed: int = 0, max_prompt: int = 60, **sampling: float) -> list[GenerateRequest]:
    """Ragged random prompts with ragged response lengths."""
    rng = random.Random(seed)
    return [
        GenerateRequest(
            request_id=f"r{index}",
            prompt_ids=[rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randint(1, max_prompt))],
            sampling=Sampling(max_tokens=rng.randint(1, 12), seed=rng.randrange(2**63), **sampling),  # type: ignore[arg-type]
            stop_token_ids=[],
        )
        for index in range(count)
    ]


@torch.inference_mode()
def reference_logprobs(
    model: PreTrainedModel, request: GenerateRequest, token_ids: list[int], temperature: float = 1.0
) -> torch.Tensor:
    """Log-probs `[num_response_tokens, vocab]` that predict the response, from one full forward pass."""
    ids = torch.tensor([request.prompt_ids + token_ids])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
    return (logits / temperature).log_softmax(-1)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something another thread does."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
