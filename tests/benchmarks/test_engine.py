"""The engine's benchmark measures what it says: no prompt is known before it is asked."""

import time
from contextlib import closing

import pytest
import torch

from benchmarks.engine import compare
from benchmarks.engine_contenders.base import tiny_model
from benchmarks.engine_contenders.ours import Ours

pytestmark = pytest.mark.slow


def test_no_cell_finds_prompts_of_another_in_the_prefix_cache() -> None:
    torch.set_num_threads(1)
    with closing(Ours(tiny_model(torch.float32), threads=1, slots=8)) as ours:
        for count in (2, 4):
            compare([ours], "distinct", count, 2, 2, time.perf_counter)
        assert ours.engine.counters.reused_tokens == 0
        compare([ours], "shared", 8, 2, 2, time.perf_counter)
        groups = 1 + 2  # the warm-up, and two repetitions
        assert ours.engine.counters.reused_tokens == groups * 7 * 255
