"""Random numbers of packages that draw from the global generators: each session continues its own."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy

_LOCK = threading.Lock()
"""Lock of the global generators of `random` and `numpy.random`."""


class OwnRandom:
    """States of the global generators as one session left them, so that sessions do not mix."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).getstate()
        self._numpy = numpy.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let the global generators continue as those of this session, and restore them at the end."""
        with _LOCK:
            others, others_numpy = random.getstate(), numpy.random.get_state()
            random.setstate(self._random)
            numpy.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._random, self._numpy = random.getstate(), numpy.random.get_state()
                random.setstate(others)
                numpy.random.set_state(others_numpy)
