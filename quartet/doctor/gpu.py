"""List accelerators, and check that the recipe's devices are there."""

from collections.abc import Iterator

from quartet.config import Recipe
from quartet.doctor.base import Doctor, Finding, Place, ok, refused
from quartet.errors import SetupError


class Gpu(Doctor):
    """List accelerators, and check that the recipe's devices are there."""

    def examine(self, place: Place) -> Iterator[Finding]:
        import torch

        if not torch.cuda.is_available():
            yield ok("torch finds no GPU; small policies need none")
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            yield ok(f"{torch.cuda.get_device_name(number)}: {free / 1e9:.0f} of {total / 1e9:.0f} GB are free")
        if place.recipe is not None:
            yield from _named(place.recipe)


def _named(recipe: Recipe) -> Iterator[Finding]:
    """Yield a finding for each device of the recipe that this machine lacks or the trainer cannot use."""
    from quartet.policy.device import usable_device
    from quartet.train.gpu.support import require_kernels

    for setting, name in (("train.device", recipe.train.device), ("engine.device", recipe.engine.device)):
        try:
            device = usable_device(name, setting)
            if setting == "train.device":
                require_kernels(device)
        except SetupError as error:
            yield refused(error)
