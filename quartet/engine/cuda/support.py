"""Decision whether CUDA graphs and Triton kernels decode on a device."""

import importlib.util
import logging
from functools import cache
from subprocess import CalledProcessError

import torch

log = logging.getLogger(__name__)
SLOWER = "the engine decodes without CUDA graphs, several times slower"


def can_decode(buffer: torch.Tensor) -> bool:
    """Return whether the kernels of this folder compute with this key or value buffer of `Rows`.

    Returns False for devices other than CUDA; also, with a warning, if the kernels lack the dtype or the head size, or
    do not run.
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
    return kernels_run(buffer.device)


@cache
def kernels_run(device: torch.device) -> bool:
    """Return whether kernels can be compiled and run on a CUDA device; if not, warn once."""
    if importlib.util.find_spec("triton") is None:
        log.warning("%s: the package triton is not installed", SLOWER)
        return False
    from quartet.engine.cuda.token_kernels import gated

    try:
        with torch.cuda.device(device):
            gated(torch.zeros(1, 2, device=device)).tolist()
    except (RuntimeError, OSError, AssertionError, CalledProcessError) as error:
        # Triton needs a C compiler and Python's headers, and looks for the driver's library.
        log.warning("%s: triton cannot run a kernel (%s: %s)", SLOWER, type(error).__name__, error)
        return False
    return True
