"""Setup verbs of OSWorld's task files, as requests to the guest. The fields of a verb are its parameters."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from quartet.env.osworld.guest import Guest, Output
from quartet.env.osworld.placeholders import Command, Placeholders
from quartet.env.osworld.task import SetupStep
from quartet.errors import ConfigError
from quartet.registry import lookup

UNTIL_PROBE_SECONDS = 0.3
"""Pause before a command is run again, because the condition `until` does not hold."""


class Verb(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the verbs."""

    opens: ClassVar[bool] = False
    """True if the verb starts a program, which may show a window after the request was answered."""

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        """Send the requests to the guest."""
        raise NotImplementedError


class Launch(Verb, frozen=True):
    """Start a program, without waiting for it."""

    command: Command
    shell: bool = False
    opens = True

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        await guest.setup("launch", {"command": placeholders.fill(self.command), "shell": self.shell})


class Until(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on a command's result, of which one has to hold."""

    returncode: int | None = None
    stdout: str | None = None
    """Part of the output."""
    stderr: str | None = None
    """Part of the error output."""

    def holds(self, result: Output) -> bool:
        """Return whether a condition holds, or there is none."""
        return (
            self == Until()
            or (self.returncode is not None and result.returncode == self.returncode)
            or (self.stdout is not None and self.stdout in result.output)
            or (self.stderr is not None and self.stderr in result.error)
        )


class Execute(Verb, frozen=True):
    """Run a command, again and again until a condition holds. The time limit of the reset ends the repetition."""

    command: Command
    shell: bool = False
    until: Until | None = None

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        command = placeholders.fill(self.command)
        result = await guest.execute(command, shell=self.shell)
        while self.until is not None and not self.until.holds(result):
            await asyncio.sleep(UNTIL_PROBE_SECONDS)
            result = await guest.execute(command, shell=self.shell)


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Address of a file, and its path in the guest."""

    url: str
    path: str


class Download(Verb, frozen=True):
    """Download files in the guest."""

    files: list[Source]

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        for file in self.files:
            await guest.setup("download_file", {"url": file.url, "path": file.path})


class Open(Verb, frozen=True):
    """Open a file by its program."""

    path: str
    opens = True

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        await guest.setup("open_file", {"path": self.path})


class Sleep(Verb, frozen=True):
    """Wait."""

    seconds: float

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        await asyncio.sleep(self.seconds)


class ActivateWindow(Verb, frozen=True):
    """Raise a window."""

    window_name: str
    strict: bool = False
    by_class: bool = False
    request: ClassVar[str] = "activate_window"

    async def run(self, guest: Guest, placeholders: Placeholders) -> None:
        await guest.setup(self.request, msgspec.to_builtins(self))


class CloseWindow(ActivateWindow, frozen=True):
    """Close a window."""

    request = "close_window"


VERBS: Mapping[str, type[Verb]] = {
    "launch": Launch,
    "execute": Execute,
    "command": Execute,
    "download": Download,
    "open": Open,
    "sleep": Sleep,
    "activate_window": ActivateWindow,
    "close_window": CloseWindow,
}
"""Verbs that this adapter knows. Browser tabs, logins and drives need services outside of the guest."""


def verbs(steps: Sequence[SetupStep]) -> list[Verb]:
    """Return the verbs of the steps, in order. Raise `ConfigError` for an unknown verb, and for parameters that are
    missing, unknown or of a wrong type."""
    return [_verb(step) for step in steps]


def _verb(step: SetupStep) -> Verb:
    kind: Any = lookup("setup verb of OSWorld", step.type, VERBS)
    try:
        return msgspec.convert(step.parameters, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the parameters of the setup verb {step.type!r}: {error}", "fix the task file") from error


async def prepare(guest: Guest, steps: Sequence[Verb], placeholders: Placeholders) -> None:
    """Run the steps in order."""
    for step in steps:
        await step.run(guest, placeholders)
