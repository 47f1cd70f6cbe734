"""Compilation of C++ kernels, once per processor and set of defines; the libraries are kept in the user's cache."""

import ctypes
import functools
import hashlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)
HEADER = Path(__file__).with_name("lanes.h")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", f"-I{HEADER.parent}"]
UNUSED_SECONDS = 30 * 86400
LANES = 16
"""Most floats per SIMD vector (`lanes.h`); the sizes of rows and heads are multiples of it."""
POINTER, NUMBER, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
"""Types of the kernels' arguments."""
Defines = tuple[tuple[str, int | str], ...]
"""Names and values of macros."""


@functools.cache
def native_library(sources: tuple[Path, ...], defines: Defines, without: str) -> ctypes.CDLL | None:
    """Return the compiled kernels.

    Returns None, with a warning that says what happens `without` them, if they cannot be compiled or loaded.
    """
    try:
        return _library(sources, [f"-D{name}={value}" for name, value in defines])
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr[:500] if isinstance(error, subprocess.CalledProcessError) else error
        log.warning(
            "cannot compile or load the CPU kernels, %s; they need g++ and a writable folder (XDG_CACHE_HOME, by "
            "default ~/.cache): %s",
            without,
            reason,
        )
        return None


def _library(sources: Sequence[Path], defines: Sequence[str]) -> ctypes.CDLL:
    """Load the kernels; compile them first if no earlier process has.

    Raises `OSError` if there is no compiler or no executable file can be written, and `CalledProcessError` if the
    compiler fails.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartet"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    library = cache / f"kernels-{_digest(sources, defines)}.so"
    if library.exists():
        try:
            loaded = ctypes.CDLL(str(library))
        except OSError as error:  # for example a file that a full disk or a crash left empty
            log.warning("compiling %s again, since it cannot be loaded: %s", library, error)
        else:
            with suppress(OSError):  # the cache belongs to another user
                os.utime(library)
            return loaded
    _remove_unused(cache)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder) / library.name
        subprocess.run(["c++", *FLAGS, *defines, *sources, "-o", fresh], capture_output=True, text=True, check=True)
        fresh.replace(library)  # atomic, because another process may load it
    return ctypes.CDLL(str(library))


def _remove_unused(cache: Path) -> None:
    """Delete libraries that no process has loaded for `UNUSED_SECONDS`, such as those of earlier versions."""
    for library in cache.glob("kernels-*.so"):
        with suppress(FileNotFoundError):  # another process deletes them too
            if time.time() - library.stat().st_mtime > UNUSED_SECONDS:
                library.unlink()


def _digest(sources: Sequence[Path], defines: Sequence[str]) -> str:
    """Return a hash of all that determines the library: sources, defines, compiler, and this processor.

    `-###` runs nothing; it prints the compiler's version and the instruction sets that `-march=native` selects.
    """
    command = ["c++", *FLAGS, *defines, "-E", "-###", "-x", "c++", os.devnull]
    compiler = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    contents = [compiler.encode(), *(file.read_bytes() for file in (*sources, HEADER))]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:32]
