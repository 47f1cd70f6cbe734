"""Configuration of the memory allocators of PyTorch and of the C library."""

import ctypes
import os
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
KEPT_BYTES = 1 << 30
MAX_MMAP_THRESHOLD_BEFORE_2_35 = 32 << 20
"""Largest value of M_MMAP_THRESHOLD that glibc accepts before version 2.35 (on 64 bits)."""


def use_huge_pages() -> None:
    """Let PyTorch ask Linux for huge pages (2 MiB) for its large tensors on the CPU, in this process and its children.

    Must be called before PyTorch is imported, which reads the variable once. With pages of 4 KiB, many reads of weights
    wait for the translation of an address: in a virtual machine on a Xeon, decode and prefill of SmolLM2-135M in
    bfloat16 took 0.8 of the time with huge pages. A value that is set already is kept.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed_memory() -> None:
    """Let this process keep freed blocks of up to 1 GiB for its next tensors, if its C library is glibc.

    By default glibc returns large freed blocks to the kernel, and the kernel clears every page of a newly allocated
    block. Elementwise operations on a megabyte then take ten times as long.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "gnu_get_libc_version"):
        set_thresholds(library.mallopt)


def set_thresholds(mallopt: Callable[[int, int], int]) -> None:
    """Set both thresholds to the highest values that `mallopt` accepts; it returns 0 for a value that it rejects.

    Setting one threshold disables glibc's automatic adjustment of both, which goes up to 32 MiB. A threshold whose
    value `mallopt` rejected would therefore stay at 128 KiB.
    """
    if not mallopt(M_MMAP_THRESHOLD, KEPT_BYTES):
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD_BEFORE_2_35)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
