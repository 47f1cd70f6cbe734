"""Free space, and the error of a full disk."""

import errno
import shutil
from pathlib import Path

from quartet.errors import SetupError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_megabytes(folder: Path) -> float:
    """Free space of the file system that holds `folder`, in 10^6 bytes."""
    return shutil.disk_usage(folder).free / 1e6


def raise_if_full(error: OSError, path: Path) -> None:
    """Raise `SetupError` when `error` means that `path` could not be written for lack of space."""
    if full := full_disk_error(error, path):
        raise full from error


def full_disk_error(error: OSError, path: Path) -> SetupError | None:
    """What to tell the user when `error`, met while writing somewhere under `path`, means a lack of space."""
    if error.errno not in _FULL:
        return None
    folder = path if path.is_dir() else path.parent
    return SetupError(
        f"cannot write {error.filename or path}: {error.strerror} ({free_megabytes(folder):.0f} MB free)",
        "free some space and go on with --resume; everything written before is intact",
    )
