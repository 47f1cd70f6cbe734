"""The C library's allocator, told to keep what is freed."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Let this process keep freed blocks of up to 1 GiB for its next tensors.

    By default glibc hands larger blocks back to the kernel, which clears every page of the next one: elementwise
    operations on a megabyte then take ten times as long. Other C libraries are left alone.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
