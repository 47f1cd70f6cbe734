"""On CUDA, passes that decode are graphs: they compute what an eager pass does, whatever happens between two passes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_models import MAX_CONTEXT_TOKENS, Gate, make_model, make_requests, publish

from quartet.engine.cache_forward import CacheForward
from quartet.engine.choose_forward import make_forward
from quartet.engine.dense_forward import DenseForward
from quartet.engine.forward import Span
from quartet.engine.sampling import sample
from quartet.engine.torch_engine import TorchEngine
from quartet.types import Sampling
from tests.devices import needs_cuda

pytestmark = [pytest.mark.slow, needs_cuda]
DTYPES = pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-3), (torch.bfloat16, 0.3)], ids=["float32", "bfloat16"]
)


class Both:
    """Two forward passes over equal models and their own rows: one repeats graphs, the other computes eagerly."""

    def __init__(self, dtype: torch.dtype, atol: float, rows: int, context: int = 2048) -> None:
        # Each forward pass fuses the projections of its own copy of the model.
        self.models = [make_model("qwen3_tied").to("cuda", dtype) for _ in range(2)]
        self.graphs, self.eager = (DenseForward(model, rows, context) for model in self.models)
        self._atol = atol

    def extend(self, spans: list[Span]) -> None:
        """Extend the rows in both ways, and compare logits, keys and values."""
        self.eager.rows.reserve(len(spans), max(span.start + len(span.token_ids) for span in spans))
        expected = self.eager.extend_eagerly(spans)
        torch.testing.assert_close(self.graphs.extend(spans), expected, atol=self._atol, rtol=0)
        for row, span in enumerate(spans):
            ours, theirs = (
                rows.read(row, 0, span.start + len(span.token_ids)) for rows in (self.graphs.rows, self.eager.rows)
            )
            torch.testing.assert_close(ours.keys, theirs.keys, atol=self._atol, rtol=2e-2)
            torch.testing.assert_close(ours.values, theirs.values, atol=self._atol, rtol=2e-2)

    def both_rows(self, change: Callable[[DenseForward], None]) -> None:
        for forward in (self.graphs, self.eager):
            change(forward)


def prompts(lengths: list[int]) -> list[Span]:
    return [Span(0, [(7 * row + index) % 512 for index in range(length)]) for row, length in enumerate(lengths)]


@DTYPES
@torch.inference_mode()
def test_ragged_rows_growth_and_rows_that_move(dtype: torch.dtype, atol: float) -> None:
    both = Both(dtype, atol, rows=16)
    lengths = [1, 40, 250, 130, 3, 255, 9]
    both.extend(prompts(lengths))
    for step in range(12):  # two rows outgrow the first 256 tokens
        both.extend([Span(length + step, [(5 * row + step) % 512]) for row, length in enumerate(lengths)])
    held = [length + 12 for length in lengths]
    both.both_rows(lambda forward: forward.rows.move(6, 1, held[6]))
    held[1] = held.pop()
    for step in range(3):
        both.extend([Span(length + step, [row + step]) for row, length in enumerate(held)])
    both.both_rows(lambda forward: forward.rows.fit(6, 1500))
    both.extend([Span(length + 3, [row]) for row, length in enumerate(held)])


@DTYPES
@torch.inference_mode()
def test_every_number_of_rows(dtype: torch.dtype, atol: float) -> None:
    """Fewer rows run in the same buffers, so padding must leave the rows behind them alone."""
    both = Both(dtype, atol, rows=21)
    both.extend(prompts([20 + row for row in range(21)]))
    for count in (21, 20, 17, 9, 3, 1):
        both.extend([Span(20 + row, [count]) for row in range(count)])
    both.extend([Span(21 + row, [7]) for row in range(21)])


@DTYPES
@torch.inference_mode()
def test_many_rows_are_not_divided_and_one_long_row_is(dtype: torch.dtype, atol: float) -> None:
    both = Both(dtype, atol, rows=256)
    both.extend(prompts([1 + row % 7 for row in range(256)]))
    both.extend([Span(1 + row % 7, [9]) for row in range(256)])
    both.extend(prompts([1900]))
    both.extend([Span(1900, [9])])


@torch.inference_mode()
def test_new_weights_and_rows_aside_need_no_new_graph() -> None:
    both = Both(torch.float32, 1e-3, rows=4)
    both.extend(prompts([30, 50]))
    both.extend([Span(30, [1]), Span(50, [2])])
    before = both.graphs.extend([Span(31, [3]), Span(51, [4])]).clone()
    with both.graphs.rows.aside():
        both.graphs.extend(prompts([5, 6]))
        both.graphs.extend([Span(5, [1]), Span(6, [2])])
    torch.testing.assert_close(both.graphs.extend([Span(31, [3]), Span(51, [4])]), before, atol=1e-5, rtol=0)
    for model in both.models:
        for parameter in model.parameters():
            parameter.mul_(1.3)
    both.both_rows(DenseForward.weights_changed)
    both.extend([Span(31, [3]), Span(51, [4])])
    assert (both.graphs.extend([Span(31, [3]), Span(51, [4])]) - before).abs().max() > 0.1


@torch.inference_mode()
def test_the_check_at_the_start_sees_a_wrong_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model("qwen3_tied").to("cuda")
    assert isinstance(make_forward(model, 4, MAX_CONTEXT_TOKENS), DenseForward)
    from quartet.engine.cuda import decode_pass

    right = decode_pass.gated
    monkeypatch.setattr(decode_pass, "gated", lambda gate_up_NE: 1.5 * right(gate_up_NE))
    assert isinstance(make_forward(model, 4, MAX_CONTEXT_TOKENS), CacheForward)
    assert "falling back" in caplog.text


@torch.inference_mode()
def test_a_pass_that_cannot_be_captured_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass is captured as if nothing had happened."""
    from quartet.engine.cuda import decode_pass

    both = Both(torch.float32, 1e-3, rows=4)
    both.extend(prompts([5, 6]))
    right = decode_pass.gated

    def fails_in_a_capture(gate_up_NE: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise ArithmeticError("the pass fails")
        return right(gate_up_NE)

    monkeypatch.setattr(decode_pass, "gated", fails_in_a_capture)
    with pytest.raises(ArithmeticError, match="the pass fails"):
        both.graphs.extend([Span(5, [1]), Span(6, [2])])
    monkeypatch.setattr(decode_pass, "gated", right)
    both.extend([Span(5, [1]), Span(6, [2])])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_draws_are_those_of_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    samplings = [Sampling(seed=seed, temperature=(1.0, 0.7, 0.0, 2.0)[seed % 4]) for seed in range(64)]
    logits_NV = (3 * torch.randn(64, 151_936)).to(dtype)
    ours, theirs = (sample(each, samplings, list(range(64))) for each in (logits_NV.cuda(), logits_NV))
    assert sum(a != b for a, b in zip(ours.token_ids, theirs.token_ids, strict=True)) <= 1, "rounding at a boundary"
    same = [row for row in range(64) if ours.token_ids[row] == theirs.token_ids[row]]
    for ours_N, theirs_N in ((ours.logprobs, theirs.logprobs), (ours.entropies, theirs.entropies)):
        assert [ours_N[row] for row in same] == pytest.approx([theirs_N[row] for row in same], abs=1e-3)
    assert ours.finite == theirs.finite == [True] * 64


async def test_requests_sample_what_they_do_on_the_cpu_before_and_after_new_weights(
    engine_of: Callable[..., TorchEngine], tmp_path: Path
) -> None:
    """Also those in flight when the new weights arrive: requests join and leave all the while."""
    path = publish(make_model(seed=1), tmp_path / "v1")
    answers = []
    for device in ("cpu", "cuda"):
        engine = engine_of(make_model().to(device), max_slots=4)
        requests = make_requests(9, seed=4, max_response=40)
        answers.append([await engine.generate(request) for request in requests])
        answers.append(await asyncio.gather(*map(engine.generate, requests)))
        gate = Gate(engine, tokens=20)
        running = [asyncio.ensure_future(engine.generate(request)) for request in requests]
        await gate.reached()
        loading = asyncio.ensure_future(engine.load_policy(path, 1))
        await gate.open(commands=1)
        await loading
        mixed = await asyncio.gather(*running)
        assert {version for result in mixed for version in result.versions} == {0, 1}
        answers.append([await engine.generate(request) for request in requests])
    for cpu, cuda in zip(answers[:3], answers[3:], strict=True):
        assert [result.token_ids for result in cuda] == [result.token_ids for result in cpu]
        for ours, theirs in zip(cuda, cpu, strict=True):
            assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
