"""Files of an episode, read and written from outside of the sandbox."""

import errno
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

MAX_FILE_BYTES = 4 << 20
"""Maximum size of a file that is judged."""
OF_THE_POLICY = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
}
"""Errors that a policy can cause, by links, permissions and files in place of folders: a missing result. All others,
such as too many open files, are failures of the environment, which are never a reward of 0."""
T = TypeVar("T")


def inside(home: Path, path: str) -> Path:
    """Return the path of a file of the home directory. Raise `ValueError` if it, or what it links to, is outside."""
    full = (home / path).resolve()
    if not full.is_relative_to(home.resolve()):
        raise ValueError(f"{path!r} is outside of the home directory")
    return full


def read_at(home: Path, path: str, read: Callable[[Path], T]) -> T | None:
    """Return the result of `read` for a path of the home directory; None if the path is missing, a link to the outside,
    or not readable in this way."""
    try:
        return read(inside(home, path))
    except (ValueError, RuntimeError):  # outside, or a loop of links
        return None
    except OSError as error:
        if error.errno not in OF_THE_POLICY:
            raise
        return None


def read_file(home: Path, path: str) -> bytes | None:
    """Return the content of a file; None if there is no readable regular file of an acceptable size."""
    return read_at(home, path, _content)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_FILE_BYTES else None


def decompressed(data: bytes) -> bytes:
    """Return gzip's content up to the maximum size. Raise `zlib.error` for other data."""
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, MAX_FILE_BYTES)
