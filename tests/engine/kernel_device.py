"""Device on which tests run Triton kernels: CUDA, or else the CPU through Triton's interpreter."""

import os

import pytest
import torch

KERNEL_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def import_triton() -> None:
    """Skip the module's tests if Triton is not installed, or has nothing to run on. Call this before the first import
    of a kernel."""
    pytest.importorskip("triton")
    if KERNEL_DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device; TRITON_INTERPRET=1 runs the kernels on the CPU", allow_module_level=True)
