"""Costs of an engine: one iteration of continuous batching, by the roofline of its GPUs.

In one iteration every request in the batch gets one token. Decoding reads all weights once and the keys and values of
each request, or is limited by its matrix products where the batch is large. Prompts are computed in chunks between
decode steps; their time is spread over the iterations of their request. The attention's own products are neglected.
"""

import math

from msgspec import Struct

from quartet.errors import ConfigError
from quartet.forecast.gpus import GpuKind
from quartet.forecast.model_size import ModelSize
from quartet.forecast.workload import Workload

DECODE_EFFICIENCY = 0.7
"""Assumed share of the peak bandwidth in decoding."""
PREFILL_EFFICIENCY = 0.5
"""Assumed share of the peak of matrix products in prompts."""
USABLE_MEMORY = 0.9
"""Share of a GPU's memory that an engine uses; vLLM's default of `gpu_memory_utilization`."""
FLOPS_PER_PARAMETER = 2
"""Operations per parameter and token of a forward pass."""


class EngineCost(Struct, frozen=True, kw_only=True):
    """Cost of one engine's iterations, for requests of one kind."""

    weights_seconds: float
    """Seconds to read the weights, once per iteration."""
    cache_seconds: float
    """Seconds to read one request's keys and values, per iteration."""
    product_seconds: float
    """Seconds of matrix products for one token."""
    prefill_seconds: float
    """Seconds to compute the prompt of one turn."""
    response_tokens: float
    """Mean tokens of one turn's response."""
    slots: int
    """Number of requests whose keys and values fit into memory; further ones wait."""

    def iteration_seconds(self, batch: float, cache_seconds: float, prefill_seconds: float) -> float:
        """Return the duration of an iteration of `batch` requests.

        `cache_seconds` is the time to read their keys and values, `prefill_seconds` the time for prompts within it.
        """
        return max(self.weights_seconds + cache_seconds, batch * self.product_seconds) + prefill_seconds

    @property
    def turn_lines(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Two lines, each as value at 0 and slope, over the number of requests of the same kind. The duration of a
        turn's generation is the larger of them: limited by memory, or by matrix products."""
        by_memory = self.response_tokens * self.cache_seconds + self.prefill_seconds
        by_products = self.response_tokens * self.product_seconds + self.prefill_seconds
        return (self.response_tokens * self.weights_seconds, by_memory), (0.0, by_products)

    def turn_seconds(self, batch: float) -> float:
        """Return the duration of one turn's generation among `batch` requests of the same kind."""
        return max(start + slope * batch for start, slope in self.turn_lines)

    @property
    def request_seconds(self) -> float:
        """Time by which one more turn in a large batch occupies the engine."""
        return self.response_tokens * max(self.cache_seconds, self.product_seconds) + self.prefill_seconds


def engine_cost(kind: GpuKind, gpus: int, model: ModelSize, workload: Workload) -> EngineCost:
    """Return the cost of an engine on several GPUs with tensor parallelism, without communication.

    Raises `ConfigError` if not even one request fits beside the weights.
    """
    bandwidth = gpus * kind.bytes_per_second * DECODE_EFFICIENCY
    product_seconds = FLOPS_PER_PARAMETER * model.parameters / (gpus * kind.flops_per_second * PREFILL_EFFICIENCY)
    request_bytes = workload.context_tokens * model.kv_bytes_per_token
    slots = math.floor((USABLE_MEMORY * gpus * kind.memory_bytes - model.weight_bytes) / max(request_bytes, 1.0))
    if slots < 1:
        raise ConfigError(
            f"an engine of {gpus} GPU{'s'[: gpus > 1]} has no memory for a request beside the weights of "
            f"{model.weight_bytes / 1e9:.1f} GB: keys and values of {workload.context_tokens:,.0f} tokens take "
            f"{request_bytes / 1e9:.1f} GB",
            "raise --gpus-per-engine, or lower --context-tokens",
        )
    return EngineCost(
        weights_seconds=model.weight_bytes / bandwidth,
        cache_seconds=request_bytes / bandwidth,
        product_seconds=product_seconds,
        prefill_seconds=workload.prompt_tokens_per_turn * product_seconds,
        response_tokens=workload.response_tokens_per_turn,
        slots=slots,
    )


def fewest_gpus(kind: GpuKind, model: ModelSize) -> int:
    """Return the smallest power of two of GPUs on which the weights take at most half of the usable memory."""
    gpus = 1
    while model.weight_bytes > 0.5 * USABLE_MEMORY * gpus * kind.memory_bytes:
        gpus *= 2
    return gpus
