"""Files that are whole or not there, free space, and the errors of a disk that is full or refuses."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quartet.errors import ConfigError, SetupError

STOPPED_BY_DISK = "disk: "
"""How the reason of a stop for lack of space begins; the run then ends with the exit code of `SetupError`."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of `path` at the end of the block: nobody ever sees half of it."""
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
    """Around what makes or writes `path`, which the user named. Raises `ConfigError` where no such place can be."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "name another place") from error


def free_megabytes(folder: Path) -> float:
    """Free space of the file system that holds `folder`, in 10^6 bytes."""
    return shutil.disk_usage(folder).free / 1e6


def raise_if_full(error: OSError, path: Path) -> None:
    """Raise `SetupError` when `error` means that `path` could not be written for lack of space."""
    if error.errno in _FULL:
        raise SetupError(
            f"cannot write {path}: {error.strerror} ({free_megabytes(path.parent):.0f} MB free)",
            "free some space and go on with --resume; everything written before is intact",
        ) from error


def disk_error(error: OSError) -> SetupError | None:
    """What to tell the user when `error`, from anywhere, means a lack of space or of the right to a file; None when it
    means something else."""
    if error.errno in _REFUSED and error.filename:
        return SetupError(f"no right to {error.filename}: {error.strerror}", "name another place, or change its rights")
    if error.errno not in _FULL:
        return None
    what = f"cannot write {error.filename}" if error.filename else "cannot write"
    return SetupError(f"{what}: {error.strerror}", "free some space and go on; what the ledger has committed is intact")
