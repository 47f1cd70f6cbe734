"""Decoder for the lines of recorded files, which may be damaged by a full disk, a copy or a killed machine."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

LOG = logging.getLogger(__name__)
T = TypeVar("T")


class LineDecoder(Generic[T]):
    """Decoder that skips and counts damaged lines, and logs a warning about the first one."""

    def __init__(self, what: str, kind: type[T], *, is_whole: Callable[[T], bool] = lambda _: True) -> None:
        """Decode lines as `kind`. `what` names the lines in the warning; `is_whole` returns False for decoded values
        that no reader can use."""
        self._what, self._decode, self._is_whole = what, msgspec.json.Decoder(kind).decode, is_whole
        self.damaged = 0
        """Number of lines skipped by this decoder."""

    def __call__(self, lines: Iterable[bytes]) -> Iterator[T]:
        for line in lines:
            try:
                decoded = self._decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                self._leave_out(str(error))
                continue
            if self._is_whole(decoded):
                yield decoded
            else:
                self._leave_out("a value is missing or out of range")

    def _leave_out(self, why: str) -> None:
        self.damaged += 1
        if self.damaged == 1:
            LOG.warning(
                "skipped a damaged line of %s: %s (further ones are skipped without a warning)", self._what, why
            )


def is_record(record: dict[str, Any]) -> bool:
    """Return whether a decoded line is a metric record: it has a time and an area."""
    return type(record.get("time")) in (int, float) and type(record.get("area")) is str


records = LineDecoder("the metrics", dict[str, Any], is_whole=is_record)
