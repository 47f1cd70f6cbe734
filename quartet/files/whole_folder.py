"""Atomically written folders with a checksum of every file: policies and trainer checkpoints.

A folder is written under a temporary name and renamed at the end, so a killed process leaves no incomplete folder.
Power loss, a failing disk or an incomplete copy can still damage the files; `check_folder` verifies their checksums.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from quartet.crash_points import crash_point
from quartet.errors import CheckpointError
from quartet.files.disk import sync
from quartet.on_progress import no_progress

CHECKSUMS = "checksums.json"
"""File that maps the name of every other file of the folder, except `UNCHECKED`, to its SHA-256 in hex."""
UNCHECKED = "*.delta"
"""Files without a checksum: damage to them is detected otherwise, and the folder is usable without them."""
WRITING, REPLACED = ".writing", ".replaced"
CHUNK_BYTES = 2**24
"""Bytes read or written between two heartbeats: few enough for a slow disk."""
_LOADED = (".json", ".safetensors")
"""Suffixes of files that loaders read; each such file must have a checksum."""
_ADVICE = f"restore the folder from a copy, or use an earlier one; after an intended change, delete its {CHECKSUMS}"


@contextmanager
def whole_folder(
    folder: Path, *, point: str, durable: bool = False, on_progress: Callable[[], None] = no_progress
) -> Iterator[Path]:
    """Yield a new folder to write. At the end of the block it gets its checksums and replaces `folder`.

    If the block raises, the new folder is deleted and `folder` stays as it is.

    With `durable` the new folder is synced to disk before the rename. `point` names the crash points before and after
    the rename. `on_progress` is called after every chunk read and every file synced.
    """
    fresh, stale = folder.with_name(folder.name + WRITING), folder.with_name(folder.name + REPLACED)
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        _write_checksums(fresh, on_progress)
        if durable:
            for path in (*fresh.rglob("*"), fresh):
                sync(path)
                on_progress()
    except BaseException:  # also Ctrl-C: an incomplete model can fill the disk, and no later command would delete it
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if folder.exists():
        folder.rename(stale)
    crash_point(f"{point}.before")
    fresh.rename(folder)
    crash_point(f"{point}.after")
    if durable:
        sync(folder.parent)
        sync(folder.parent.parent)  # the first folder of its kind creates its parent too
    shutil.rmtree(stale, ignore_errors=True)


def check_folder(folder: Path, *, except_for: str = "", on_progress: Callable[[], None] = no_progress) -> None:
    """Compare every file with its checksum, except files that match the pattern `except_for`.

    Raises `CheckpointError` that names the first file that is missing, changed or without a checksum.
    """
    checksums = _read_checksums(folder)
    for name, expected in checksums.items():
        file = folder / name
        if except_for and file.match(except_for):
            continue
        try:
            found = _checksum(file, on_progress)
        except (OSError, ValueError) as error:  # `ValueError`: an invalid file name in a damaged list
            raise CheckpointError(f"cannot read {file}: {error}", _ADVICE) from error
        if found != expected:
            raise CheckpointError(f"{file} is damaged: it does not match its checksum", _ADVICE)
    unknown = {file.name for file in folder.iterdir() if file.suffix in _LOADED} - {CHECKSUMS, *checksums}
    if unknown:
        raise CheckpointError(f"{folder / min(unknown)} has no checksum in {CHECKSUMS}", _ADVICE)


def _write_checksums(folder: Path, on_progress: Callable[[], None]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.match(UNCHECKED))
    checksums = {file.relative_to(folder).as_posix(): _checksum(file, on_progress) for file in files}
    (folder / CHECKSUMS).write_bytes(msgspec.json.format(msgspec.json.encode(checksums)))


def _read_checksums(folder: Path) -> dict[str, str]:
    file = folder / CHECKSUMS
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is missing or damaged: {error}", _ADVICE) from error


def _checksum(file: Path, on_progress: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK_BYTES):
            digest.update(chunk)
            on_progress()
    return digest.hexdigest()
