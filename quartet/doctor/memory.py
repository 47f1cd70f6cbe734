"""Check free memory, and the container's memory limit."""

from collections.abc import Iterator
from pathlib import Path

from quartet.doctor.base import Doctor, Finding, Place, lacks, note, ok

NEEDED_MEGABYTES, COMFORTABLE_MEGABYTES = 1500, 4000
"""Memory for a run (five Python processes and a browser) with a tiny policy, and with a policy of some hundred million
parameters."""
_MEMINFO, _LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


class Memory(Doctor):
    """Check free memory, and the container's memory limit."""

    def examine(self, place: Place) -> Iterator[Finding]:
        if not _MEMINFO.is_file():
            yield note("memory cannot be read on this system", f"make sure that {NEEDED_MEGABYTES} MB are free")
            return
        values = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        free = int(values["MemAvailable"].split()[0]) / 1000
        advice = "end other programs, or lower env.sessions and engine.max_slots"
        if free < NEEDED_MEGABYTES:
            yield lacks(f"{free:,.0f} MB of memory are free; a run takes about {NEEDED_MEGABYTES}", advice)
        elif free < COMFORTABLE_MEGABYTES:
            yield note(f"{free:,.0f} MB of memory are free", advice)
        else:
            yield ok(f"{free:,.0f} MB of memory are free")
        if _LIMIT.is_file() and (limit := _LIMIT.read_text().strip()).isdigit() and int(limit) < NEEDED_MEGABYTES * 1e6:
            yield lacks(f"this container may use {int(limit) / 1e6:,.0f} MB", f"give it at least {NEEDED_MEGABYTES} MB")
