"""Verifier of reasoning-gym as a reward, which runs in a child process of its own."""

import pickle
from typing import Any

from quartet.config.section import Positive, Section
from quartet.env.extra import import_extra
from quartet.env.rewards.base import Case, Reward
from quartet.env.scoring.limited import limited


class Verifier(Reward):
    """Score of an answer by its data set. A row has the data set's `family`, `seed`, and its pickled `entry`.

    Several data sets evaluate an answer as Python, so each answer is scored in a process with limits.
    """

    class Settings(Section):
        options: dict[str, dict[str, Any]] = {}
        """Settings of generators by the name of the data set."""
        answer_seconds: Positive
        """Maximum processor time of an answer; one that needs more scores 0."""

    settings: Settings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._library = import_extra("reasoning_gym", "reasoning-gym")

    def score(self, case: Case) -> float:
        family, entry = case.row["family"], pickle.loads(case.row["entry"])
        options = self.settings.options.get(family, {})
        made = self._library.create_dataset(family, seed=case.row["seed"], size=1, **options)
        return limited(lambda: float(made.score_answer(case.answer, entry)), self.settings.answer_seconds) or 0.0
