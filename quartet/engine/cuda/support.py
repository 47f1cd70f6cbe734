"""Decision whether CUDA graphs and Triton kernels decode on a device."""

import importlib.util
import logging
from collections.abc import Callable
from functools import cache
from subprocess import CalledProcessError

import torch

log = logging.getLogger(__name__)
SLOWER = "the engine decodes without CUDA graphs, several times slower"


def graphs_support(buffer: torch.Tensor) -> bool:
    """Return whether the kernels of this folder are made for this key or value buffer of `Rows`.

    Returns False for devices other than CUDA; also, with a warning, if the kernels lack the dtype or the head size, or
    do not run at all. `can_run` then tells whether they run with the model's sizes.
    """
    if buffer.device.type != "cuda":
        return False
    head_dim = buffer.shape[4]
    if buffer.dtype not in (torch.float32, torch.bfloat16):
        log.warning("%s: the kernels compute in float32 and bfloat16, not in %s", SLOWER, buffer.dtype)
        return False
    if head_dim < 16 or head_dim & (head_dim - 1):
        log.warning("%s: the kernels need a head size that is a power of two, at least 16, not %d", SLOWER, head_dim)
        return False
    return kernels_run(buffer.device, buffer.dtype)


@cache
def kernels_run(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether kernels can be compiled and run on a CUDA device, and draw from logits of this dtype; if not, warn
    once."""
    if importlib.util.find_spec("triton") is None:
        log.warning("%s: the package triton is not installed", SLOWER)
        return False
    from quartet.engine.cuda.draw import draw

    logits_12 = torch.zeros(1, 2, dtype=dtype, device=device)
    with torch.cuda.device(device):
        return can_run(lambda: draw(logits_12, torch.zeros(1, 2, dtype=torch.float64, device=device)).tolist())


def can_run(run: Callable[[], object]) -> bool:
    """Return whether `run` can compile and run its kernels; if not, warn. Needs the package triton."""
    from triton.errors import TritonError  # pyright: ignore[reportMissingImports]

    try:
        run()
    except (TritonError, RuntimeError, OSError, AssertionError, CalledProcessError) as error:
        # Triton needs a C compiler and Python's headers, looks for the driver's library, and may find that the device
        # lacks shared memory or an instruction.
        log.warning("%s: triton cannot run a kernel (%s: %s)", SLOWER, type(error).__name__, error)
        return False
    return True
