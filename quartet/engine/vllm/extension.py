"""What Quartet adds to vLLM's worker, which imports this file by `--worker-extension-cls`. It needs torch and no other
part of Quartet."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open


class QuartetExtension:
    """Mixed into vLLM's worker class; its methods are called through `/collective_rpc`."""

    model_runner: Any
    reload_weights: Callable[..., None]

    def quartet_is_here(self) -> bool:
        """A server that somebody else started may lack the extension; then this call fails."""
        return True

    def quartet_load_policy(self, folder: str) -> None:
        """Replace the model's weights in place by those of a policy folder."""
        self.reload_weights(weights_iterator=_tensors(Path(folder)))
        _pack_again(self.model_runner.get_model())


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no dict)
                yield name, opened.get_tensor(name)


def _pack_again(model: torch.nn.Module) -> None:
    """On a CPU vLLM multiplies by a packed copy of each matrix, and a reload renews the copies of modules that have
    weights of their own in the file. A tied output matrix has none: it would go on with the old weights."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "cpu_linear") and weight is not None and weight.numel() > 0:
            method: Any = module.quant_method
            method.process_weights_after_loading(module)
