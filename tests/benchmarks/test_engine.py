"""The engine's benchmark measures what it says: no prompt is known before it is asked."""

from contextlib import closing

import pytest
import torch

from benchmarks.engine import Lengths, compare
from benchmarks.engine_contenders.base import Workload, tiny_model
from benchmarks.engine_contenders.ours import Ours
from benchmarks.engine_contenders.work import Limits, Work, work_of
from benchmarks.processor_time import wall_seconds

pytestmark = pytest.mark.slow


def test_no_cell_finds_prompts_of_another_in_the_prefix_cache() -> None:
    torch.set_num_threads(1)
    with closing(Ours(tiny_model(torch.float32), threads=1, slots=8)) as ours:
        for count in (2, 4):
            compare([ours], "distinct", count, Lengths(prompt=256, new=2), 2, wall_seconds)
        assert ours.engine.counters.reused_tokens == 0
        compare([ours], "shared", 8, Lengths(prompt=256, new=2), 2, wall_seconds)
        groups = 1 + 2  # the warm-up, and two repetitions
        assert ours.engine.counters.reused_tokens == groups * 7 * 255


def layers_and_head() -> tuple[int, int]:
    """Return the numbers of weights in the matrices of the layers, and in the head, which is the embedding too."""
    queries_and_output, keys_and_values = 2 * 256 * 256, 2 * 256 * 128
    return 4 * (queries_and_output + keys_and_values + 3 * 256 * 512), 4096 * 256


def test_the_work_of_a_conversation_is_that_of_its_tokens() -> None:
    """Prompt of 5, three tokens, an observation of 2, three tokens, of which the last is not read."""
    model = tiny_model(torch.float32)
    layers, head = layers_and_head()
    found = work_of(Workload([[1] * 5], [[[2, 2]]], 3), model)
    tokens, pairs = 5 + 3 + 2 + 2, 12 * 13 // 2
    assert found.flop == 2 * tokens * layers + 2 * 6 * head + 4 * pairs * 4 * 256
    contexts = (5 + 6 + 7) + (10 + 11 + 12)
    weights = sum(weight.nbytes for weight in model.parameters())
    assert weights == pytest.approx(4 * (layers + head), rel=0.01)
    assert found.read_bytes == 6 * weights + contexts * (2 * 4 * 128) * 4


def test_a_shared_prompt_is_computed_once_and_its_keys_are_read_by_each() -> None:
    model = tiny_model(torch.float32)
    layers, head = layers_and_head()
    found = work_of(Workload([[1] * 4, [1] * 4, [3] * 4], [[]] * 3, 2), model)
    assert found.flop == 2 * (4 + 4 + 3) * layers + 2 * 6 * head + 4 * (2 * 10 + 3 * 5) * 4 * 256
    weights = sum(weight.nbytes for weight in model.parameters())
    assert found.read_bytes == 2 * weights + 3 * (4 + 5) * (2 * 4 * 128) * 4


def test_shares_are_of_what_the_machine_does_in_the_same_time() -> None:
    limits = Limits(bytes_per_second=1e9, flop_per_second=1e10)
    shares = limits.shares(Work(read_bytes=10**9, flop=10**9), seconds=2.0)
    assert shares == {"share_of_bandwidth": 0.5, "share_of_products": 0.05}
