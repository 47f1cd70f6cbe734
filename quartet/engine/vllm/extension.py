"""Quartet's extension of vLLM's worker, which imports this file because of `--worker-extension-cls`.

The file needs torch and safetensors, and of Quartet only files that need no more (`quartet/policy/transfer.py`).
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

LOG = logging.getLogger(__name__)


class QuartetExtension:
    """Mixin of vLLM's worker class. The engine calls the mixin's methods through the route `/collective_rpc`."""

    model_runner: Any
    reload_weights: Callable[..., None]

    def quartet_is_here(self) -> bool:
        """Return True. The call fails on a server that was started without the extension."""
        return True

    def quartet_load_policy(self, folder: str, transfer_seconds: float = 0.0) -> None:
        """Replace the model's weights in place by those of a policy folder.

        With `transfer_seconds`, receive them from the trainer's memory. If they do not arrive in that time, read the
        folder.
        """
        received = _received(Path(folder), transfer_seconds) if transfer_seconds else None
        self.reload_weights(weights_iterator=iter(received.items()) if received else _tensors(Path(folder)))
        _pack_again(self.model_runner.get_model())


def _received(folder: Path, transfer_seconds: float) -> dict[str, torch.Tensor] | None:
    from quartet.errors import BroadcastError
    from quartet.policy.transfer import receive

    try:
        return receive(folder, transfer_seconds)
    except BroadcastError as error:
        LOG.warning("reading the whole weights in %s: %s", folder, error.what)
        return None


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no dict)
                yield name, opened.get_tensor(name)


def _pack_again(model: torch.nn.Module) -> None:
    """Renew vLLM's packed copies of the weights.

    On a CPU, vLLM multiplies by a packed copy of each matrix. A reload renews the copies only of modules whose weights
    are in the file. A tied output matrix is not in the file, so its copy would keep the old weights.
    """
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "cpu_linear") and weight is not None and weight.numel() > 0:
            method: Any = module.quant_method
            method.process_weights_after_loading(module)
