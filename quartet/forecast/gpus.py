"""Kinds of GPU, with the peak figures of their data sheets."""

from msgspec import Struct


class GpuKind(Struct, frozen=True, kw_only=True):
    """One kind of GPU."""

    flops_per_second: float
    """Peak of dense bfloat16 matrix products."""
    bytes_per_second: float
    """Peak bandwidth of its memory."""
    memory_bytes: float


GPUS = {
    "A100": GpuKind(flops_per_second=312e12, bytes_per_second=2.039e12, memory_bytes=80e9),
    "H20": GpuKind(flops_per_second=148e12, bytes_per_second=4.0e12, memory_bytes=96e9),
    "H100": GpuKind(flops_per_second=989e12, bytes_per_second=3.35e12, memory_bytes=80e9),
    "H200": GpuKind(flops_per_second=989e12, bytes_per_second=4.8e12, memory_bytes=141e9),
    "H800": GpuKind(flops_per_second=989e12, bytes_per_second=3.35e12, memory_bytes=80e9),
}
"""Variants with SXM socket, without sparsity; the A100 with 80 GB. Source: NVIDIA's data sheets."""
