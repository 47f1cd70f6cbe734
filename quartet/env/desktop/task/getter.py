"""Getters: the part of a desktop's state that a check judges. `get` names the class; None means a missing part."""

import configparser
import re
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from msgspec import Struct

from quartet.env.desktop.task.place import decompressed, read_at, read_file
from quartet.errors import ConfigError

if TYPE_CHECKING:  # tasks can be read without the packages that a desktop needs
    from quartet.env.desktop.desktop import Desktop
    from quartet.env.desktop.elements import Item

_GNUMERIC = "{http://www.gnumeric.org/v10.dtd}"
_CELL = re.compile(r"([A-Za-z]{1,3})([1-9][0-9]{0,6})")


class File(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="file"):
    """Text of a file, without white space at its end."""

    path: str

    def read(self, desktop: "Desktop") -> str | None:
        data = read_file(desktop.home, self.path)
        return None if data is None else data.decode(errors="replace").rstrip()


class Entries(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="entries"):
    """Sorted names in a folder, without hidden files."""

    path: str = "."

    def read(self, desktop: "Desktop") -> list[str] | None:
        return read_at(desktop.home, self.path, _visible)


class Mode(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="mode"):
    """Permissions of a file, such as `rwxr-xr-x`."""

    path: str

    def read(self, desktop: "Desktop") -> str | None:
        return read_at(desktop.home, self.path, lambda path: stat.filemode(path.stat().st_mode)[1:])


class Setting(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="setting"):
    """Value in a settings file with sections, such as GSettings' key file."""

    key: str
    section: str
    path: str = ".config/glib-2.0/settings/keyfile"

    def read(self, desktop: "Desktop") -> str | None:
        data = read_file(desktop.home, self.path)
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string((data or b"").decode(errors="replace"))
        except configparser.Error:
            return None
        return parser.get(self.section, self.key, fallback=None)


class Windows(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="windows"):
    """Sorted titles of the windows."""

    def read(self, desktop: "Desktop") -> list[str]:
        return sorted(window.title for window in desktop.screen.windows())


class Elements(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="elements"):
    """Lines of the windows and elements that the policy sees, without references."""

    def read(self, desktop: "Desktop") -> list[str]:
        return [_line(item) for item in desktop.listing().items]


class Cell(Struct, frozen=True, forbid_unknown_fields=True, tag_field="get", tag="cell"):
    """Content of a cell of a Gnumeric file, as it was entered."""

    path: str
    cell: str
    """Address such as `B3` or `AA3`, of the first sheet."""

    def __post_init__(self) -> None:
        _place(self.cell)

    def read(self, desktop: "Desktop") -> str | None:
        root = _sheet(read_file(desktop.home, self.path) or b"")
        if root is None:
            return None
        place = _place(self.cell)
        try:
            cells = {_address(cell): cell.text or "" for cell in root.iter(f"{_GNUMERIC}Cell")}
        except ValueError:  # the policy can write any file
            return None
        return cells.get(place, "")


def _visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def _place(address: str) -> tuple[int, int]:
    """Return the numbers of an address's column and row, from 0: `B3` is (1, 2), `AA1` is (26, 0)."""
    parts = _CELL.fullmatch(address)
    if parts is None:
        raise ConfigError(f"{address!r} is no address of a cell", "write the column's letters and the row, as in B3")
    column = 0
    for letter in parts[1].upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return column - 1, int(parts[2]) - 1


def _address(cell: ElementTree.Element) -> tuple[int, int]:
    return int(cell.get("Col", -1)), int(cell.get("Row", -1))


def _sheet(data: bytes) -> ElementTree.Element | None:
    """Return the first sheet of a Gnumeric file, compressed or not; None for other data."""
    try:
        return ElementTree.fromstring(decompressed(data) if data[:2] == b"\x1f\x8b" else data).find(
            f".//{_GNUMERIC}Sheet"
        )
    except (ElementTree.ParseError, zlib.error, LookupError, ValueError):  # the last two for an unknown encoding
        return None


def _line(item: "Item") -> str:
    return item.line.replace(f" [{item.ref}]", "")


Getter = File | Entries | Mode | Setting | Windows | Elements | Cell
