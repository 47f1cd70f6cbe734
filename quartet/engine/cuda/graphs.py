"""CUDA graphs of the passes that decode, one per padded number of rows.

Launching the kernels of a pass one by one takes several times as long as the GPU needs to execute them; a graph is
launched at once. All values that differ between passes are read from `DecodeInputs`, and new weights are copied in
place, so a graph is valid as long as the model. The memory of the graphs and of their logits is not part of the KV
cache: `engine.kv_cache_megabytes` does not limit it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import torch

from quartet.engine.cuda.decode_pass import DecodePass
from quartet.engine.cuda.inputs import DecodeInputs
from quartet.engine.forward import Span
from quartet.engine.rows import Rows

SIZES_PER_OCTAVE = 4
"""Padded numbers of rows between a power of two and the next one; a pass is padded by at most a quarter."""


class CapturedPass(NamedTuple):
    """One graph, with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: DecodeInputs
    logits_NV: torch.Tensor


class DecodeGraphs:
    """Decode passes over the first rows of `rows`, each repeated from a CUDA graph."""

    def __init__(self, compute: DecodePass, rows: Rows, vocab_size: int) -> None:
        self._compute, self._rows = compute, rows
        self._captured: dict[int, CapturedPass] = {}
        device, dtype = rows.keys.device, rows.keys.dtype
        # One result for all graphs, and one memory pool: only one of them runs at a time.
        self._logits_NV = torch.empty(padded(rows.max_rows), vocab_size, device=device, dtype=dtype)
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    @torch.inference_mode()
    def __call__(self, spans: list[Span]) -> torch.Tensor:
        """Append spans of one token each to their rows. Return the logits, which are valid until the next call."""
        size = padded(len(spans))
        if size not in self._captured:
            self._captured[size] = self._capture(size, spans)
        captured = self._captured[size]
        captured.inputs.fill(spans, self._rows)
        captured.graph.replay()
        return captured.logits_NV[: len(spans)]

    def _capture(self, size: int, spans: list[Span]) -> CapturedPass:
        """Capture the pass. A pass before it compiles the kernels and makes the workspaces of cuBLAS."""
        inputs, logits_NV = DecodeInputs(size, self._logits_NV.device), self._logits_NV[:size]
        inputs.fill(spans, self._rows)
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                self._compute(inputs, logits_NV)
                self._stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                # Other threads may use the device meanwhile: they check new weights.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                with _ending(graph):
                    self._compute(inputs, logits_NV)
        except BaseException:
            # PyTorch forgets a pool when the only graph that uses it was not captured.
            self._pool = torch.cuda.graph_pool_handle()
            raise
        finally:
            current.wait_stream(self._stream)
        return CapturedPass(graph, inputs, logits_NV)


@contextmanager
def _ending(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """End the capture of a graph. If the captured pass fails, its error is raised, not the one of the invalid capture
    that follows from it."""
    try:
        yield
    except BaseException:
        with suppress(RuntimeError):
            graph.capture_end()
        raise
    graph.capture_end()


def padded(rows: int) -> int:
    """Return the number of rows of the graph that computes `rows` rows."""
    step = max(1, (1 << (rows - 1).bit_length()) // (2 * SIZES_PER_OCTAVE))
    return -(-rows // step) * step
