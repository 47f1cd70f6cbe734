"""Note and tags of a run, written by people, in a small file of its folder: a copy of the run keeps them."""

from pathlib import Path

import msgspec

from quartet.errors import ConfigError
from quartet.files.disk import whole_file

FILE = "notes.json"
MOST_BYTES = 64 * 1024
"""Size limit of the file: the list of runs shows it whole."""


class Notes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    note: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run_dir: Path) -> Notes:
    """Return the notes, empty ones where there are none. Raises `ConfigError` for a file that is none."""
    path = run_dir / FILE
    if not path.is_file():
        return Notes()
    try:
        with path.open("rb") as file:
            content = _sized(file.read(MOST_BYTES + 1), path)
        return msgspec.json.decode(content, type=Notes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} holds no notes: {error}", "delete it, and write the note again") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "make it readable, or delete it") from error


def write_notes(run_dir: Path, notes: Notes) -> None:
    """Write the file, whole or not at all. Raises `ConfigError` for notes that are too large."""
    path = run_dir / FILE
    content = _sized(msgspec.json.format(msgspec.json.encode(notes)) + b"\n", path)
    with whole_file(path) as fresh:
        fresh.write_bytes(content)


def _sized(content: bytes, path: Path) -> bytes:
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} may have {MOST_BYTES} bytes, and these notes have more", "write a shorter note")
    return content
