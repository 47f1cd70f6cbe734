"""The engine's own code for CPUs, compiled for this processor and the heads of one model when an engine starts."""

import ctypes
import functools
import logging
import subprocess
import tempfile
from pathlib import Path

import torch

log = logging.getLogger(__name__)
SOURCES = [Path(__file__).with_name(name) for name in ("row_kernel.cpp", "token_kernel.cpp")]
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
LANES = 16
"""Numbers that are computed at once."""
READ_BYTES = 64
"""What the code reads at once; a head has a multiple of it."""


def kernel_library(buffer: torch.Tensor, heads: int) -> ctypes.CDLL | None:
    """For `heads` query heads and a buffer of `Rows`; None where there is none: elsewhere than on a CPU, for heads that
    are no multiple of 64 bytes, and, with a warning, where it cannot be compiled or loaded."""
    kv_heads, head_dim = buffer.shape[2], buffer.shape[4]
    known = buffer.dtype in (torch.float32, torch.bfloat16) and head_dim * buffer.element_size() % READ_BYTES == 0
    if buffer.device.type != "cpu" or not known:
        return None
    return _compiled(head_dim, heads // kv_heads, buffer.element_size())


@functools.cache
def _compiled(head_dim: int, group: int, element_bytes: int) -> ctypes.CDLL | None:
    try:
        return _library(head_dim, group, element_bytes)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr[:500] if isinstance(error, subprocess.CalledProcessError) else error
        log.warning("no compiled kernels, so the engine takes up to twice as long (they need g++): %s", reason)
        return None


def _library(head_dim: int, group: int, element_bytes: int) -> ctypes.CDLL:
    """Raises `OSError` without a compiler or where it may write nothing that can be run, and `CalledProcessError`."""
    shape = {
        "LANES": LANES,
        "HEAD_DIM": head_dim,
        "GROUP": group,
        "ELEMENT_BYTES": element_bytes,
        "SCALE": f"{head_dim**-0.5}f",
    }
    defines = [f"-D{name}={value}" for name, value in shape.items()]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        subprocess.run(["c++", *FLAGS, *defines, *SOURCES, "-o", library], capture_output=True, text=True, check=True)
        return ctypes.CDLL(str(library))
