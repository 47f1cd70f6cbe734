"""Getters of OSWorld's evaluators that need nothing but the guest's commands and files. Their fields are the keys in
the task file, besides `type`."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from quartet.env.osworld.guest import Guest
from quartet.env.osworld.placeholders import Command
from quartet.errors import ConfigError
from quartet.registry import lookup


class Getter(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the getters."""

    async def read(self, guest: Guest) -> Any:
        """Return the value; None if there is none."""
        raise NotImplementedError


class CommandLine(Getter, frozen=True):
    """Output of a command."""

    command: Command
    shell: bool = False

    async def read(self, guest: Guest) -> str:
        return (await guest.execute(self.command, shell=self.shell)).output


class File(Getter, frozen=True):
    """Text of a file."""

    path: str
    dest: str = ""
    """Name of OSWorld's copy on the host, which is not made here."""

    async def read(self, guest: Guest) -> str | None:
        content = await guest.file(self.path)
        return None if content is None else content.decode(errors="replace")


class Rule(Getter, frozen=True):
    """Rules of a metric, as the task file has them."""

    rules: dict[str, Any]

    async def read(self, guest: Guest) -> dict[str, Any]:
        return self.rules


GETTERS: Mapping[str, type[Getter]] = {"vm_command_line": CommandLine, "vm_file": File, "rule": Rule}


def getter(given: Any) -> Getter:
    """Return a getter of a task file. Raise `ConfigError` for an unknown one, and for keys that are missing, unknown or
    of a wrong type."""
    if not isinstance(given, dict) or "type" not in given:
        raise ConfigError(f"a getter without a type: {given!r:.80}", "fix the task file")
    kind: Any = lookup("getter of OSWorld", str(given["type"]), GETTERS)
    try:
        return msgspec.convert({key: value for key, value in given.items() if key != "type"}, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the getter {given['type']!r}: {error}", "fix the task file") from error
