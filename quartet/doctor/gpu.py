"""List accelerators."""

from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, ok


class Gpu(Doctor):
    """List accelerators."""

    def examine(self, place: Place) -> Iterator[Finding]:
        import torch

        if not torch.cuda.is_available():
            yield ok("torch finds no GPU; small policies need none")
            return
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            yield ok(f"{torch.cuda.get_device_name(number)}: {free / 1e9:.0f} of {total / 1e9:.0f} GB are free")
