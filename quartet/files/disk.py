"""Atomic file writes, free space, and errors of a full disk or of missing permissions."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quartet.errors import ConfigError, SetupError

STOPPED_BY_DISK = "disk: "
"""Prefix of a run's stop reason if the disk is full; the run then ends with the exit code of `SetupError`."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def full_disk(stop_reason: str | None) -> str | None:
    """Return a run's stop reason if it is a full disk, after which nothing more is evaluated."""
    return stop_reason if stop_reason and stop_reason.startswith(STOPPED_BY_DISK) else None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that atomically replaces `path` at the end of the block."""
    fresh = path.with_name(path.name + ".writing")
    yield fresh
    fresh.replace(path)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, survives power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def usable_output(path: Path) -> Iterator[None]:
    """Context for writing `path`, which the user named. Raises `ConfigError` if that path cannot be created."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "name another path") from error


def free_megabytes(folder: Path) -> float:
    """Return the free space of the file system that holds `folder`, in 10^6 bytes."""
    return shutil.disk_usage(folder).free / 1e6


def low_disk(folder: Path, least_megabytes: int) -> str | None:
    """Return what is wrong if less than `disk.min_free_megabytes` are free at `folder`, else None."""
    free = free_megabytes(folder)
    if free >= least_megabytes:
        return None
    return f"only {free:.0f} MB are free at {folder}, fewer than disk.min_free_megabytes = {least_megabytes}"


def raise_if_low(folder: Path, least_megabytes: int) -> None:
    """Raise `SetupError` if less than `disk.min_free_megabytes` are free at `folder`.

    A full disk makes modules and rollouts fail in many ways; call this before reporting such a failure.
    """
    if low := low_disk(folder, least_megabytes):
        raise SetupError(low, "free some space and continue with --resume; everything written before is intact")


def raise_if_full(error: OSError, path: Path) -> None:
    """Raise `SetupError` if `error` means that `path` could not be written for lack of space."""
    if error.errno in _FULL:
        raise SetupError(
            f"cannot write {path}: {error.strerror} ({free_megabytes(path.parent):.0f} MB free)",
            "free some space and continue with --resume; everything written before is intact",
        ) from error


def disk_error(error: OSError) -> SetupError | None:
    """Return the error to show the user if `error` means a full disk or missing permissions, else None."""
    if error.errno in _REFUSED and error.filename:
        what = f"no permission for {error.filename}: {error.strerror}"
        return SetupError(what, "name another path, or change its permissions")
    if error.errno not in _FULL:
        return None
    what = f"cannot write {error.filename}" if error.filename else "cannot write"
    return SetupError(f"{what}: {error.strerror}", "free some space and continue; committed ledger data is intact")
