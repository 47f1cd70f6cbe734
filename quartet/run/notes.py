"""What people write about a run: a note and tags, in a small file of the run, so that they go with a copy."""

from pathlib import Path

import msgspec

from quartet.errors import ConfigError
from quartet.files.disk import whole_file

FILE = "notes.json"


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    note: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run_dir: Path) -> Notes:
    """Return the notes, empty ones where there are none. Raises `ConfigError` for a file that is none."""
    path = run_dir / FILE
    if not path.is_file():
        return Notes()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Notes)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} holds no notes: {error}", "delete it, or write the note again") from error


def write_notes(run_dir: Path, notes: Notes) -> None:
    """Write the file, whole or not at all."""
    with whole_file(run_dir / FILE) as fresh:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(notes)) + b"\n")
