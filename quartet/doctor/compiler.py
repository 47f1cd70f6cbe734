"""The C++ compiler: on a CPU the engine compiles its kernel with it, which is tried here."""

from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, note, ok


class Compiler(Doctor):
    """The C++ compiler: on a CPU the engine compiles its kernel with it, which is tried here."""

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is not None and place.recipe.engine.name != "torch":
            return
        import torch

        from quartet.engine.kernel_library import kernel_library

        if kernel_library(torch.zeros(1, 1, 1, 1, 64), 1) is not None:
            yield ok("the engine's kernel compiles")
        else:
            yield note("the engine's kernel does not compile: on a CPU it takes up to twice as long", "install g++")
