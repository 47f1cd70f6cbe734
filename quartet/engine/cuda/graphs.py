"""CUDA graphs of the passes that decode, one per padded number of rows.

Launching the kernels of a pass one by one takes several times as long as the GPU needs to execute them; a graph is
launched at once. Everything that differs between passes is read from `DecodeInputs`, and new weights are copied in
place, so a graph is valid as long as the model.
"""

from typing import NamedTuple

import torch

from quartet.engine.cuda.decode_pass import DecodePass
from quartet.engine.cuda.inputs import DecodeInputs
from quartet.engine.forward import Span
from quartet.engine.rows import Rows

SIZES_PER_OCTAVE = 4
"""Padded numbers of rows between a power of two and the next one; a pass is padded by at most a quarter."""


class Captured(NamedTuple):
    """One graph, with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: DecodeInputs
    logits_NV: torch.Tensor


class DecodeGraphs:
    """Decode passes over the first rows of `rows`, each repeated from a CUDA graph."""

    def __init__(self, compute: DecodePass, rows: Rows, vocab_size: int) -> None:
        self._compute, self._rows = compute, rows
        self._captured: dict[int, Captured] = {}
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

    def _capture(self, size: int, spans: list[Span]) -> Captured:
        """Capture the pass. A pass before it compiles the kernels and makes the workspaces of cuBLAS."""
        inputs, logits_NV = DecodeInputs(size, self._logits_NV.device), self._logits_NV[:size]
        inputs.fill(spans, self._rows)
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._compute(inputs, logits_NV)
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the device meanwhile: they check new weights.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._compute(inputs, logits_NV)
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return Captured(graph, inputs, logits_NV)


def padded(rows: int) -> int:
    """Return the number of rows of the graph that computes `rows` rows."""
    step = max(1, (1 << (rows - 1).bit_length()) // (2 * SIZES_PER_OCTAVE))
    return -(-rows // step) * step
