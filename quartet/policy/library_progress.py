"""Progress of long calls of `transformers`: reading a model's tensors, and writing its shards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils.logging import set_tqdm_hook


class _ReportingBar:
    """Wrapper of a progress bar of `transformers`, visible or not, that calls `on_progress` after each step."""

    def __init__(self, bar: Any, on_progress: Callable[[], None]) -> None:
        self._bar, self._on_progress = bar, on_progress

    def __iter__(self) -> Iterator[Any]:
        for item in self._bar:
            yield item
            self._on_progress()

    def update(self, *arguments: Any) -> None:
        self._bar.update(*arguments)
        self._on_progress()

    def __enter__(self) -> "_ReportingBar":
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bar, name)


@contextmanager
def reporting(on_progress: Callable[[], None]) -> Iterator[None]:
    """Call `on_progress` after every tensor or shard that `transformers` reads or writes inside the block."""
    former = set_tqdm_hook(lambda factory, args, kwargs: _ReportingBar(factory(*args, **kwargs), on_progress))
    try:
        yield
    finally:
        set_tqdm_hook(former)
