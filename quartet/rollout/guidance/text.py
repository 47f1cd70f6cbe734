"""Agent-RLVR's guidance as fixed texts: a plan or a hint for a task or for its whole family."""

from functools import cached_property
from pathlib import Path

import msgspec

from quartet.config import Recipe
from quartet.config.section import LocalPath, Section
from quartet.errors import ConfigError
from quartet.rollout.guidance.base import Guidance, Guide
from quartet.types import Task


class TextGuidance(Guidance):
    """Give the same text in all turns: that of the task, else that of its family, else none."""

    class Settings(Section):
        texts: dict[str, str] = {}
        """Family, or key of a task, and its text."""
        file: LocalPath = ""
        """JSON file of one object with further texts. `texts` has precedence."""

    settings: Settings
    source = "Agent-RLVR, arXiv 2506.11425: guidance, such as plans and hints, for a second attempt"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        if not cls(settings, recipe).texts:
            raise ConfigError(
                "rollout.guidance = 'text' has no texts", "set rollout.guidance.texts or rollout.guidance.file"
            )

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text by family or task. Raises `ConfigError` for a file that cannot be read."""
        if not self.settings.file:
            return self.settings.texts
        try:
            stored = msgspec.json.decode(Path(self.settings.file).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"rollout.guidance.file: {self.settings.file} cannot be read: {error}",
                "write a JSON object of texts by family or task",
            ) from error
        return stored | self.settings.texts

    def guide(self, task: Task) -> Guide:
        text = self.texts.get(task.key, self.texts.get(task.family, ""))
        return lambda _: text
