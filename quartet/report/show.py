"""Formatting of numbers for people. A function that accepts None (unknown) formats it as a dash."""

import time

from rich import filesize

from quartet.report.comparison.intervals import wilson

UNKNOWN = "–"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(value: float | None) -> str:
    """Format 12345 as 12,345."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def counted(number: float, noun: str, plural: str = "") -> str:
    """Format 1 of a step as 1 step, 2,000 as 2,000 steps; `plural` is for nouns that do not add an s."""
    return f"{number:,.10g} {noun if number == 1 else plural or noun + 's'}"


def times(value: int) -> str:
    """Format 1 as once, 2 as twice, 3 as 3 times."""
    return {1: "once", 2: "twice"}.get(value, f"{value:,} times")


def percent(value: float | None) -> str:
    """Format 0.856 as 86 %."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def interval(rate: float, n: int) -> str:
    """Format the 95 % interval of a success rate: 0.84 over 480 episodes as 80 to 87 %."""
    low, high = wilson(rate, n)
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def decimal(value: float | None, places: int = 2) -> str:
    """Format 0.8562 as 0.86."""
    return UNKNOWN if value is None else f"{value:,.{places}f}"


def duration(seconds: float | None) -> str:
    """Format 90 as 1 min 30 s. A negative duration, which is a difference of two machines' clocks, is shown as 0 ms."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def size(num_bytes: float | None) -> str:
    """Format 1234567 as 1.2 MB (10^6 bytes)."""
    return UNKNOWN if num_bytes is None else filesize.decimal(round(num_bytes))


def moment(unix_seconds: float | None) -> str:
    """Format Unix seconds as 2026-11-21 10:39:20, in the server's time zone."""
    if unix_seconds is None:
        return UNKNOWN
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))
