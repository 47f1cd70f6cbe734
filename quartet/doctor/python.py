"""Check Python's version."""

import platform
import sys
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok

OLDEST = (3, 11)


class PythonVersion(Doctor):
    """Check Python's version."""

    def examine(self, place: Place) -> Iterator[Finding]:
        version = platform.python_version()
        if sys.version_info < OLDEST:
            yield lacks(f"Python {version}", "make a virtual environment with Python 3.11 or newer")
        else:
            yield ok(f"Python {version} ({sys.executable})")
