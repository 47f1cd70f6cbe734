"""Journals: the calls that attempts at unfinished rollouts have sampled, in files beside the ledger.

    RUN/journals/ROLLOUT.ATTEMPT

A worker appends each call as soon as its response is complete. If the attempt ends without a trajectory that counts,
the next one continues from these calls, like an attempt after a recall: the loop runs from the reset, and the model
client answers a prompt from the journal while the environment responds as before. A journal survives the death of its
process, not that of its disk. A journal that is lost or torn costs generation, and nothing else.
"""

import logging
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import sqlalchemy as sa

from quartet.files.disk import raise_if_full
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import rollouts
from quartet.types import Call, RolloutLease, RolloutState

LOG = logging.getLogger(__name__)
FOLDER = "journals"
_HEADER = struct.Struct("<II")
"""Length in bytes and CRC-32 of the call that follows."""
_NAME = re.compile(r"\d+\.\d+")
_ROWS_PER_QUERY = 500


class Journals:
    """Journals of a run's rollouts. Each attempt appends to its own file, also one whose lease has ended."""

    def __init__(self, db: RunDatabase) -> None:
        self._db, self._folder = db, db.run_dir / FOLDER

    def append(self, lease: RolloutLease, call: Call) -> None:
        """Add a complete call to the journal of its attempt. Raises `SetupError` on a full disk."""
        data = msgspec.msgpack.encode(call)
        path = self._path(lease.rollout_id, lease.attempt)
        try:
            self._folder.mkdir(exist_ok=True)
            with path.open("ab", buffering=0) as file:
                file.write(_HEADER.pack(len(data), zlib.crc32(data)) + data)
        except OSError as error:
            raise_if_full(error, path)
            raise

    def calls(self, rollout_id: int, attempt: int, after: int = 0) -> list[Call]:
        """Return the calls of the attempts between `after` and `attempt`, without these two. Of calls with the same key
        the newest counts."""
        newest: dict[tuple[str, str], Call] = {}
        for earlier in range(after + 1, attempt):
            newest |= {(call.policy, call.key): call for call in _read(self._path(rollout_id, earlier))}
        return list(newest.values())

    def drop_finished(self) -> int:
        """Delete the journals of rollouts that have ended; return their number."""
        by_rollout: defaultdict[int, list[Path]] = defaultdict(list)
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if _NAME.fullmatch(path.name):  # a network file system adds names of its own
                by_rollout[int(path.stem)].append(path)
        ended = [path for rollout_id in self._finished(list(by_rollout)) for path in by_rollout[rollout_id]]
        for path in ended:
            path.unlink(missing_ok=True)
        return len(ended)

    def _finished(self, rollout_ids: Sequence[int]) -> Iterator[int]:
        """Yield those of these rollouts that have ended."""
        with self._db.read() as connection:
            for first in range(0, len(rollout_ids), _ROWS_PER_QUERY):
                mine = rollouts.c.id.in_(rollout_ids[first : first + _ROWS_PER_QUERY])
                rows = connection.execute(sa.select(rollouts.c.id, rollouts.c.state).where(mine))
                yield from [row.id for row in rows if row.state == RolloutState.FINISHED]

    def _path(self, rollout_id: int, attempt: int) -> Path:
        return self._folder / f"{rollout_id}.{attempt}"


def _read(path: Path) -> Iterator[Call]:
    """Yield the calls of a journal up to its end, or to the first one that is torn, damaged or of another format."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    place = 0
    while place + _HEADER.size <= len(data):
        size, checksum = _HEADER.unpack_from(data, place)
        packed = data[place + _HEADER.size : place + _HEADER.size + size]
        if len(packed) < size or zlib.crc32(packed) != checksum:
            return
        try:
            yield msgspec.msgpack.decode(packed, type=Call)
        except msgspec.MsgspecError as error:
            LOG.warning("%s: sampling the calls from byte %d on again: %s", path, place, error)
            return
        place += _HEADER.size + size
