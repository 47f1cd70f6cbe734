"""Base of sessions whose methods are plain functions, and which hold resources."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager


class ThreadedSession(ABC):
    """Session that can be closed while a call still runs in its thread, which happens if the call exceeds its limit.

    The resources are released when no call uses them, so those that this call makes are released, too.
    """

    def __init__(self) -> None:
        self._in_use, self._closed = threading.Lock(), False

    def close(self) -> None:
        """Release the resources, now or at the end of the call that runs."""
        self._closed = True
        self._release_unused()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the resources during the block."""
        try:
            with self._in_use:
                yield
        finally:
            if self._closed:
                self._release_unused()

    def _release_unused(self) -> None:
        if self._in_use.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._in_use.release()

    @abstractmethod
    def _release(self) -> None:
        """Release the resources, if there are any."""
