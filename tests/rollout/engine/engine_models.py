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
    Qwen2Config,
    Qwen2ForCausalLM,
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


_TIED = _SHAPE | {"tie_word_embeddings": True}
_WINDOW = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
_GPT2 = {"vocab_size": VOCAB_SIZE, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": MAX_CONTEXT_TOKENS}
_GPT2 |= {"initializer_range": 0.15, "eos_token_id": None, "bos_token_id": None}

_MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SHAPE, head_dim=16)),
    "qwen3_tied_biased": lambda: Qwen3ForCausalLM(Qwen3Config(**_TIED, head_dim=16, attention_bias=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE)),
    "qwen2_sliding": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE, **_WINDOW)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE)),
    "llama_biased": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE, attention_bias=True)),
    "llama_mlp_biased": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE, mlp_bias=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**_GPT2)),
}


def make_model(architecture: str = "qwen3", seed: int = 0) -> PreTrainedModel:
    """A random model of two layers in float32; its biases are not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _MAKERS[architecture]().eval()
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                torch.nn.init.normal_(parameter, std=0.3)
        return model


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
