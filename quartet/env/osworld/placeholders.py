"""Placeholders in the commands of OSWorld's task files, such as `{SCREEN_WIDTH_HALF}`."""

import os
from typing import NamedTuple

Command = str | list[str]
"""Command line, or program and arguments."""
PASSWORD_VARIABLE = "QUARTET_GUEST_PASSWORD"
"""Environment variable with the password of the guests' user. A recipe is written to the run's folder, so it does not
contain passwords."""
DEFAULT_PASSWORD = "password"
"""Password in the images of virtual machines that OSWorld publishes."""


class Placeholders(NamedTuple):
    """Values of one guest."""

    width: int
    """Width of the screen in pixels."""
    height: int

    def fill(self, command: Command) -> Command:
        """Return the command with the values in it."""
        if not isinstance(command, str):
            return [self._filled(part) for part in command]
        return self._filled(command)

    def _filled(self, text: str) -> str:
        values = {
            "CLIENT_PASSWORD": os.environ.get(PASSWORD_VARIABLE, DEFAULT_PASSWORD),
            "SCREEN_WIDTH": self.width,
            "SCREEN_HEIGHT": self.height,
            "SCREEN_WIDTH_HALF": self.width // 2,
            "SCREEN_HEIGHT_HALF": self.height // 2,
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text
