"""A disk that is full: a limit on the size of files, to libraries the same error of the operating system."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def max_file_size(num_bytes: int) -> Iterator[None]:
    """Let writes of this process beyond `num_bytes` of a file fail with `EFBIG`. A process that starts in the block
    would keep the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
