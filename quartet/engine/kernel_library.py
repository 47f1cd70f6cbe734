"""CPU kernels of the engine, compiled once per processor and model's head sizes, and kept in the user's cache."""

import ctypes
import functools
import hashlib
import logging
import os
import subprocess
import tempfile
from pathlib import Path

import torch

log = logging.getLogger(__name__)
SOURCES = [Path(__file__).with_name(name) for name in ("row_kernel.cpp", "token_kernel.cpp")]
HEADER = Path(__file__).with_name("lanes.h")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
LANES = 16
"""Floats per SIMD vector."""
READ_BYTES = 64
"""Bytes per read; the size of a head must be a multiple of this."""


def kernel_library(buffer: torch.Tensor, heads: int) -> ctypes.CDLL | None:
    """Return the kernels for `heads` query heads and a key or value buffer of `Rows`.

    Returns None for devices other than CPUs, dtypes other than float32 and bfloat16, and heads whose size is not a
    multiple of 64 bytes. Also returns None, with a warning, if the kernels cannot be compiled or loaded.
    """
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
        log.warning(
            "CPU kernels unavailable, the engine takes up to twice as long; they need g++ and a folder that can be "
            "written (XDG_CACHE_HOME, by default ~/.cache): %s",
            reason,
        )
        return None


def _library(head_dim: int, group: int, element_bytes: int) -> ctypes.CDLL:
    """Load the kernels; compile them first if no earlier process has.

    Raises `OSError` if there is no compiler or no executable file can be written, and `CalledProcessError` if the
    compiler fails.
    """
    shape = {
        "LANES": LANES,
        "HEAD_DIM": head_dim,
        "GROUP": group,
        "ELEMENT_BYTES": element_bytes,
        "SCALE": f"{head_dim**-0.5}f",
    }
    defines = [f"-D{name}={value}" for name, value in shape.items()]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartet"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    library = cache / f"kernels-{_digest(defines)}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fresh = Path(folder) / library.name
            subprocess.run(["c++", *FLAGS, *defines, *SOURCES, "-o", fresh], capture_output=True, text=True, check=True)
            fresh.replace(library)  # atomic, because another process may load it
    return ctypes.CDLL(str(library))


def _digest(defines: list[str]) -> str:
    """Return a hash of all that determines the library: sources, defines, compiler, and this processor.

    `-###` runs nothing; it prints the compiler's version and the instruction sets that `-march=native` selects.
    """
    command = ["c++", *FLAGS, *defines, "-E", "-###", "-x", "c++", os.devnull]
    compiler = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    contents = [compiler.encode(), *(file.read_bytes() for file in (*SOURCES, HEADER))]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:32]
