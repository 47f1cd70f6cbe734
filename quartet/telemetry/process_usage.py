"""Processor time and memory of this process, without its children."""

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")
"""Memory in pages: the second number is the resident size. Linux only; elsewhere the memory is not recorded."""


class ProcessUsage:
    """Processor use between two calls, and current memory."""

    def __init__(self) -> None:
        self._wall, self._processor = time.monotonic(), time.process_time()

    def since_last(self) -> dict[str, float]:
        """Return the metrics `module/processor_cores` and `module/memory_megabytes`, without their area."""
        wall, processor = time.monotonic(), time.process_time()
        cores = (processor - self._processor) / max(wall - self._wall, 1e-3)
        self._wall, self._processor = wall, processor
        usage = {"processor_cores": round(cores, 4)}
        if _STATM.exists():
            pages = int(_STATM.read_text().split()[1])
            usage["memory_megabytes"] = round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
        return usage
