"""The C library's allocator, told to keep what is freed."""

import ctypes
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
KEPT_BYTES = 1 << 30
MAX_MMAP_THRESHOLD_BEFORE_2_35 = 32 << 20
"""The most that glibc takes before version 2.35 (on 64 bits)."""


def keep_freed_memory() -> None:
    """Let this process keep freed blocks of up to 1 GiB for its next tensors.

    By default glibc hands larger blocks back to the kernel, which clears every page of the next one: elementwise
    operations on a megabyte then take ten times as long. Other C libraries are left alone.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "gnu_get_libc_version"):
        set_thresholds(library.mallopt)


def set_thresholds(mallopt: Callable[[int, int], int]) -> None:
    """Set both thresholds as high as `mallopt`, which returns 0 for what it does not take, allows.

    Setting either ends the adjustment that glibc does on its own, which goes up to 32 MiB: a refused threshold would
    leave it at 128 KiB for good.
    """
    if not mallopt(M_MMAP_THRESHOLD, KEPT_BYTES):
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD_BEFORE_2_35)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
