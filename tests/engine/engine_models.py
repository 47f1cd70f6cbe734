"""Tiny models of several architectures, requests, and what a full forward pass says about them."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from quartet.engine.base import Engine, GenerateRequest
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import EngineError
from quartet.files.whole_folder import CHECKSUMS, whole_folder
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.save import write_policy
from quartet.types import Sampling
from tests.waiting import until

VOCAB_SIZE = 512
MAX_CONTEXT_TOKENS = 256
HEAD_DIM = 32
"""Of models with tied embeddings: vLLM has no attention for smaller heads on a CPU."""

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


_WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1}
"""Heads that the engine's compiled operations take."""
_TIED = _SHAPE | {"tie_word_embeddings": True}
_WINDOW = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_GPT2 = {"vocab_size": VOCAB_SIZE, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": MAX_CONTEXT_TOKENS}
_GPT2 |= {"initializer_range": 0.15, "eos_token_id": None, "bos_token_id": None}

_MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SHAPE, head_dim=16)),
    "qwen3_tied": lambda: Qwen3ForCausalLM(Qwen3Config(**_TIED, head_dim=HEAD_DIM)),
    "qwen3_tied_biased": lambda: Qwen3ForCausalLM(Qwen3Config(**_TIED, head_dim=HEAD_DIM, attention_bias=True)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**_SHAPE, **_EXPERTS, head_dim=16)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE)),
    "qwen2_sliding": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE, **_WINDOW)),
    "qwen2_wide": lambda: Qwen2ForCausalLM(Qwen2Config(**_SHAPE | _WIDE)),
    "llama_wide": lambda: LlamaForCausalLM(LlamaConfig(**_SHAPE | _WIDE)),
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


def greedy_ids(model: Any, request: GenerateRequest) -> list[int]:
    """What `transformers` generates, `[max_tokens]`."""
    prompt = torch.tensor([request.prompt_ids])
    whole = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=request.sampling.max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return whole[0, prompt.shape[1] :].tolist()


def make_longrope(original_tokens: int = 64) -> PreTrainedModel:
    """As Phi-3's long models: other frequencies in calls that are longer than `original_tokens`."""
    frequencies = _SHAPE["hidden_size"] // _SHAPE["num_attention_heads"] // 2
    rope = {"rope_type": "longrope", "short_factor": [1.0] * frequencies, "long_factor": [8.0] * frequencies}
    config = Phi3Config(
        **_SHAPE,
        pad_token_id=None,
        max_position_embeddings=MAX_CONTEXT_TOKENS,
        original_max_position_embeddings=original_tokens,
        rope_parameters=rope | {"rope_theta": 10_000.0},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Phi3ForCausalLM(config).eval()


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, with a text for every token of the models above."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([Path(__file__).read_text(), "näher … 你好 🙂🙃"], trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def make_word_tokenizer() -> PreTrainedTokenizerFast:
    """One word per token id."""
    words = {f"w{index}": index for index in range(VOCAB_SIZE)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def make_requests(
    count: int, *, seed: int = 0, max_prompt: int = 60, max_response: int = 12, **sampling: float
) -> list[GenerateRequest]:
    """Ragged random prompts with ragged response lengths."""
    rng = random.Random(seed)
    return [
        GenerateRequest(
            request_id=f"r{index}",
            prompt_ids=[rng.randrange(1, VOCAB_SIZE) for _ in range(rng.randint(1, max_prompt))],
            sampling=Sampling(max_tokens=rng.randint(1, max_response), seed=rng.randrange(2**63), **sampling),  # type: ignore[arg-type]
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


def publish(model: PreTrainedModel, folder: Path) -> Path:
    """Write a policy as the trainer leaves it: weights, tokenizer, canary, checksums."""
    with whole_folder(folder, point="policy") as fresh:
        write_policy(model, make_word_tokenizer(), fresh)
        write_canary(fresh, model, [fixed_sequence(VOCAB_SIZE, 64), fixed_sequence(VOCAB_SIZE, 300)[100:]])
    return folder


def without_checksums(folder: Path) -> Path:
    """A policy of an older Quartet, or one whose trainer made a mistake: no file is damaged."""
    (folder / CHECKSUMS).unlink()
    return folder


def other_canary(folder: Path) -> None:
    without_checksums(folder)
    write_canary(folder, make_model(seed=2), [fixed_sequence(VOCAB_SIZE, 64)])


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def missing_tensor(folder: Path) -> None:
    without_checksums(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor for name, tensor in weights.items() if "q_proj" not in name}, folder / "model.safetensors")


def not_finite(folder: Path) -> None:
    without_checksums(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor * torch.nan for name, tensor in weights.items()}, folder / "model.safetensors")


def flipped_bit(folder: Path) -> None:
    """In the lowest bit of the last weight: no canary would show it."""
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


DAMAGES = [other_canary, truncated, flipped_bit, missing_tensor, not_finite, no_weights]


class Gate:
    """Holds an engine between two passes as soon as it has sampled more than `tokens`: its requests are in flight then,
    however busy the machine is, until the gate opens."""

    def __init__(self, engine: TorchEngine, tokens: int) -> None:
        self._engine, self._last = engine, engine.counters.generated_tokens + tokens
        self._extend, self._reached, self._opened = engine.forward.extend, Event(), Event()
        engine.forward.extend = self._pass  # type: ignore[method-assign]

    def _pass(self, spans: list[Any]) -> torch.Tensor:
        if self._engine.counters.generated_tokens > self._last:
            self._reached.set()
            self._opened.wait(60)
        return self._extend(spans)

    async def reached(self) -> None:
        """Wait until the engine is held."""
        await until(self._reached.is_set)

    async def open(self, *, commands: int = 0) -> None:
        """Let it go on, not before so many commands wait for the end of the pass."""
        await until(lambda: self._engine.queued_commands >= commands)
        self._opened.set()


async def until_healthy(engine: Engine, *, healthy: bool = True) -> None:
    """Wait until an engine answers its health check, or until it refuses it."""
    async with asyncio.timeout(30):
        while await is_healthy(engine) != healthy:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def is_healthy(engine: Engine) -> bool:
    """Return whether the engine says which version it serves."""
    try:
        await engine.version()
    except EngineError:
        return False
    return True
