"""Least work of a workload, and its share of what the machine could do meanwhile.

The work is that of an engine which computes every distinct prompt once, keeps all keys and values, and decodes all
conversations together. Each forward pass then reads the weights once, and each conversation its keys and values.
"""

from collections import Counter
from typing import Any

from msgspec import Struct

from benchmarks.engine_contenders.base import Workload
from benchmarks.machine_limits import bytes_per_second, flop_per_second
from benchmarks.processor_time import Timer


class Work(Struct, frozen=True):
    """What a workload needs at least."""

    read_bytes: int
    """Bytes of weights, keys and values that the forward passes read."""
    flop: int
    """Floating-point operations of the matrix products, those of attention included."""


class Limits(Struct, frozen=True):
    """Measured limits of the machine, at one precision and number of threads."""

    bytes_per_second: float
    flop_per_second: float

    def shares(self, work: Work, seconds: float) -> dict[str, float]:
        """Return the achieved shares. A share of the bandwidth may exceed 1 if a cache holds the weights."""
        return {
            "share_of_bandwidth": round(work.read_bytes / seconds / self.bytes_per_second, 3),
            "share_of_products": round(work.flop / seconds / self.flop_per_second, 3),
        }


def limits(model: Any, seconds_of: Timer) -> Limits:
    """Measure the machine's limits for products of the shape and precision of the model's MLP."""
    config = model.config
    return Limits(
        bytes_per_second(seconds_of),
        flop_per_second(config.hidden_size, config.intermediate_size, model.dtype, seconds_of),
    )


def work_of(workload: Workload, model: Any) -> Work:
    """Return the least work of a workload with this model."""
    config, new, turns = model.config, workload.new_tokens, workload.turns
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    weight_bytes = sum(weight.nbytes for weight in model.parameters())
    if embedding is not head:
        weight_bytes -= embedding.nbytes  # a pass reads a few rows of it
    token_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * head.element_size()
    layers = sum(weight.numel() for weight in model.model.layers.parameters() if weight.ndim == 2)
    contexts = tokens = pairs = 0
    for prompt, observed in zip(workload.prompts, workload.observations, strict=True):
        begin = len(prompt)
        for turn in range(turns):
            contexts += sum(range(begin, begin + new))
            begin += new + (len(observed[turn]) if turn + 1 < turns else -1)  # the last token is sampled only
        tokens += begin
        pairs += _pairs(begin)
    for prompt, count in Counter(map(tuple, workload.prompts)).items():
        tokens -= (count - 1) * len(prompt)
        pairs -= (count - 1) * _pairs(len(prompt))
    attention = 4 * pairs * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    sampled = workload.generated_tokens
    return Work(
        read_bytes=turns * new * weight_bytes + contexts * token_bytes,
        flop=2 * tokens * layers + 2 * sampled * head.numel() + attention,
    )


def _pairs(tokens: int) -> int:
    """Return the number of pairs of a query and a key of a sequence."""
    return tokens * (tokens + 1) // 2
