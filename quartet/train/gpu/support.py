"""Check that a machine can compile the kernels that the trainer uses on a GPU."""

import os
import shutil
from importlib.util import find_spec

import torch

from quartet.errors import SetupError


def require_kernels(device: torch.device) -> None:
    """Raise `SetupError` if the device is a GPU and Triton or its C compiler is missing."""
    if device.type != "cuda":
        return
    if find_spec("triton") is None:
        raise SetupError(
            f"train.device = '{device}' needs Triton, which is not installed",
            "install PyTorch's build for CUDA on Linux, which brings it along, or `pip install triton`",
        )
    if not any(map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))):
        raise SetupError(
            f"train.device = '{device}' needs a C compiler, with which Triton compiles its launchers",
            "install one (Debian: apt-get install gcc), or name it in the environment variable CC",
        )
