"""Python itself."""

import platform
import sys
from collections.abc import Iterator

from quartet.doctor.base import Finding, Place, lacks, ok

OLDEST = (3, 11)


def check(place: Place) -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info < OLDEST:
        yield lacks(f"Python {version}", "make a virtual environment with Python 3.11 or newer")
    else:
        yield ok(f"Python {version} ({sys.executable})")
