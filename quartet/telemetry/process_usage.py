"""Processor time and memory of this process, without its children."""

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")
"""File with the process's memory in pages, of which the second number is the resident size. It exists on Linux only; on
other systems the memory is not recorded."""


class ProcessUsage:
    """Meter of the processor use since the previous call, and of the current memory."""

    def __init__(self) -> None:
        self._wall, self._processor = time.monotonic(), time.process_time()

    def since_last(self) -> dict[str, float]:
        """Return the metrics `processor_cores` and `memory_megabytes` of the area `module`."""
        wall, processor = time.monotonic(), time.process_time()
        cores = (processor - self._processor) / max(wall - self._wall, 1e-3)
        self._wall, self._processor = wall, processor
        usage = {"processor_cores": round(cores, 4)}
        if _STATM.exists():
            pages = int(_STATM.read_text().split()[1])
            usage["memory_megabytes"] = round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
        return usage
