"""Steps that prepare an episode: the verb `do` of a step names the class."""

from typing import TYPE_CHECKING

from msgspec import Struct

from quartet.env.desktop.task.place import inside
from quartet.errors import ConfigError

if TYPE_CHECKING:  # tasks can be read without the packages that a desktop needs
    from quartet.env.desktop.deadline import Deadline
    from quartet.env.desktop.desktop import Desktop


class Write(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="write"):
    """Write a file."""

    path: str
    text: str = ""

    def apply(self, desktop: "Desktop", _: "Deadline") -> None:
        path = inside(desktop.home, self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text)


class Folder(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="folder"):
    """Make a folder."""

    path: str

    def apply(self, desktop: "Desktop", _: "Deadline") -> None:
        inside(desktop.home, self.path).mkdir(parents=True, exist_ok=True)


class Launch(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="launch"):
    """Start a program, and wait until it shows its window and the desktop is quiet."""

    argv: list[str]
    window: str
    """Part of the title of the window."""

    def apply(self, desktop: "Desktop", deadline: "Deadline") -> None:
        desktop.launch(self.argv)
        deadline.wait(lambda: self._shown(desktop), f"a window {self.window!r} of {self.argv[0]}")
        desktop.settle()

    def _shown(self, desktop: "Desktop") -> bool:
        return any(self.window in window.title for window in desktop.screen.windows())


class Press(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="press"):
    """Press keys, for example to bring a program into a state."""

    keys: list[str]

    def apply(self, desktop: "Desktop", _: "Deadline") -> None:
        for keys in self.keys:
            if not desktop.devices.key(keys):
                raise ConfigError(f"no key {keys!r} on the desktop's keyboard", "write keys as in `Enter`, `Control+a`")
            desktop.settle()


Step = Write | Folder | Launch | Press
