"""Limit for repeated warnings, so that a failure that repeats does not fill the disk with log lines."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PERIOD_SECONDS = 60.0
MAX_DIFFERENT = 10
"""Maximum number of different warnings of one line of code in a period."""


@dataclass
class _Place:
    """Warnings of one line of code in the current period."""

    began: float
    messages: set[str] = field(default_factory=set)
    left_out: int = 0


class RepeatLimit(logging.Filter):
    """Filter that passes each warning or error once a minute. The next one that passes reports how many were left out.

    Warnings of the same line of code with different text, such as another address or count, pass too, up to
    `MAX_DIFFERENT` a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now, message = self._clock(), record.getMessage()
        key = (record.pathname, record.lineno)
        place = self._places.setdefault(key, _Place(now))
        if now - place.began >= PERIOD_SECONDS:
            if place.left_out:
                record.msg, record.args = f"{message} ({place.left_out} more like it were left out)", None
            place = self._places[key] = _Place(now)
        if message in place.messages or len(place.messages) >= MAX_DIFFERENT:
            place.left_out += 1
            return False
        place.messages.add(message)
        return True
