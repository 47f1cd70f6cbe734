"""Measured limits of this machine: the bandwidth of a copy in memory, and the speed of a matrix product.

Both hold for the number of threads that PyTorch has. With a timer of processor time they are per second of one thread.
"""

import torch

from benchmarks.processor_time import Timer
from quartet.policy.linear import linear

COPIED_BYTES = 1 << 28
"""Size of the copied tensor: larger than the caches of a processor."""
COPIES = 8
TOKENS, PRODUCTS = 4096, 40


def bytes_per_second(seconds_of: Timer) -> float:
    """Return how many bytes per second a copy reads and writes together."""
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    target.copy_(source)  # the first copy also takes the pages from the operating system

    def copy() -> None:
        for _ in range(COPIES):
            target.copy_(source)

    return COPIES * 2 * COPIED_BYTES / seconds_of(copy)


def flop_per_second(columns: int, rows: int, dtype: torch.dtype, seconds_of: Timer) -> float:
    """Return the speed of one product of 4,096 tokens with a matrix of this shape, by the faster library."""
    x_TD, weight_ED = torch.randn(TOKENS, columns, dtype=dtype), torch.randn(rows, columns, dtype=dtype)
    linear(x_TD, weight_ED)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            linear(x_TD, weight_ED)

    return PRODUCTS * 2 * TOKENS * columns * rows / seconds_of(multiply)
