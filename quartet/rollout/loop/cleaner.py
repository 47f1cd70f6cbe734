"""CLEANER: a failed action that the policy repairs is recorded as if it had been right at once."""

from collections.abc import Mapping
from typing import Any

from quartet.config import Recipe
from quartet.config.section import Fraction, Positive, Section
from quartet.env.base import Env
from quartet.errors import ConfigError
from quartet.registry import find
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits, first
from quartet.rollout.loop.screens import ScreensLoop
from quartet.rollout.purified import PurifiedEpisode
from quartet.types import Task, Trajectory


class CleanerLoop(ScreensLoop):
    """Run the loop `screens`, and roll back failed actions once a retry succeeds (similarity-aware adaptive rollback).

    GRPO rewards a faulty call as much as the others of its rollout if a retry saved the rollout. With the rollback the
    retry is trained instead, after the prompt of the faulty call. Failed turns count towards the turn limit. The tokens
    of failed calls are not in the record. Prompts with pictures are not rolled back. The environment must not change
    when an action fails, so no snapshot is needed. The rollback also happens in evaluations, always with probability 1;
    the released code has a probability.
    """

    class Settings(Section):
        max_retries: Positive = 3
        """Maximum number of failures in a row that are rolled back. After more the failures stay in the record, and
        nothing is rolled back for the rest of the rollout."""
        similarity: Fraction = 0.5
        """Similarity of the failed and the repaired action (gamma, of `difflib.SequenceMatcher`) from which on the text
        before the failed action is kept. Below, the whole response is replaced."""
        mark: str = ""
        """Text with which the action begins in a response, such as `<tool_call>`. If empty, a response is an action as
        a whole."""

    settings: Settings
    removes_guidance = False
    source = "CLEANER, similarity-aware adaptive rollback; released code, tool_agent_loop.py"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        history: Any = find("history", recipe.rollout.history.name)
        if history.samples:
            raise ConfigError(
                f"the loop 'cleaner' cannot roll back calls of the history {recipe.rollout.history.name!r}",
                "set rollout.history = 'all' or 'latest'",
            )
        if recipe.rollout.brancher.name != "none":
            raise ConfigError(
                "the loop 'cleaner' rolls back calls from which a brancher may have forked",
                "set rollout.brancher = 'none'",
            )

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        options = self.settings.model_dump()
        return [await PurifiedEpisode(task, env, first(models), limits, **options).play(self._past.prompt)]
