"""Framing of a byte stream into NUL-separated messages, in linear time and bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

MAX_MESSAGE_BYTES = 32 << 20
"""Maximum size of a message: more than an uncompressed screenshot of a large screen."""

TAIL_BYTES = 256
"""Number of last bytes kept of a longer message; they contain the id of the session that sent it."""


class Frame(NamedTuple):
    """One message, or the tail of a message that was too long to keep."""

    data: bytearray
    whole: bool


class Framer:
    """Decoder of one stream."""

    def __init__(self) -> None:
        self._data, self._whole = bytearray(), True

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the messages that these bytes complete; only the new bytes are searched for a separator."""
        first, *others = data.split(b"\0")
        self._append(first)
        for piece in others:
            yield Frame(self._data, self._whole)
            self._data, self._whole = bytearray(), True
            self._append(piece)

    def _append(self, piece: bytes) -> None:
        self._data += piece
        self._whole = self._whole and len(self._data) <= MAX_MESSAGE_BYTES
        if not self._whole:
            del self._data[:-TAIL_BYTES]
