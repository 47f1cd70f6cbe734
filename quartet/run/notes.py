"""Note and tags that people write on a run. They are in a small file of the run's folder, so that a copy has them."""

from pathlib import Path

import msgspec

from quartet.errors import ConfigError
from quartet.files.disk import whole_file

FILE = "notes.json"
MOST_BYTES = 64 * 1024
"""Size limit of the file, since the list of runs shows its whole content."""


class Notes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a run's file of notes."""

    note: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run_dir: Path) -> Notes:
    """Return the notes; empty notes if there is no file. Raises `ConfigError` if the file is not a notes file."""
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
    """Write the file atomically. Raises `ConfigError` for notes that are too large."""
    path = run_dir / FILE
    content = _sized(msgspec.json.format(msgspec.json.encode(notes)) + b"\n", path)
    with whole_file(path) as fresh:
        fresh.write_bytes(content)


def _sized(content: bytes, path: Path) -> bytes:
    if len(content) > MOST_BYTES:
        raise ConfigError(f"the notes in {path} would exceed {MOST_BYTES} bytes", "write a shorter note")
    return content
