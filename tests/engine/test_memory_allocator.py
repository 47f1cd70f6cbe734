"""What is asked of the allocators of PyTorch and of the C library, a new and an old one."""

import os
import subprocess
import sys

import pytest

from quartet.native.memory_allocator import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, set_thresholds

MIB = 1 << 20


@pytest.mark.parametrize(("limit", "kept"), [(1 << 40, 1024 * MIB), (32 * MIB, 32 * MIB)])
def test_the_threshold_is_as_high_as_the_library_takes(limit: int, kept: int) -> None:
    """`mallopt` of glibc 2.35 and of an older one, which takes at most 32 MiB; only one of them is on a machine."""
    taken: dict[int, int] = {}

    def mallopt(parameter: int, value: int) -> int:
        if parameter == M_MMAP_THRESHOLD and value > limit:
            return 0
        taken[parameter] = value
        return 1

    set_thresholds(mallopt)
    assert taken == {M_MMAP_THRESHOLD: kept, M_TRIM_THRESHOLD: 1024 * MIB}


SCRIPT = """
import os
from quartet.native.memory_allocator import use_huge_pages
use_huge_pages()
import torch
print(torch.empty(10_000_000).data_ptr() % os.sysconf("SC_PAGE_SIZE"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch asks for huge pages on Linux only")
@pytest.mark.parametrize(("variables", "aligned"), [({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)])
def test_pytorch_asks_for_huge_pages_unless_the_user_declined(
    variables: dict[str, str], aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch aligns a tensor to pages only if it asks for huge ones."""
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) == 0) == aligned
