"""The desk as an environment for TRL's `environment_factory`: methods that are tools, and a sleep for every step."""

import random
import time
from typing import Any

from benchmarks.desk import ENVIRONMENT, Desk
from benchmarks.trl_contenders.conversation import page
from benchmarks.workload import Workload
from quartet.actions.grammar import ActionError, parse_action
from quartet.types import Task


class DeskTools:
    """Environment that runs one episode after the other."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._draw = workload, random.Random(0)

    def reset(self, seed: int, **columns: Any) -> str:
        """Start the episode of this seed, and return the first page."""
        self._desk = Desk(Task(env=ENVIRONMENT, family="press", seed=seed), self._workload)
        return page(self._desk)

    def click(self, element: str) -> str:
        """Press a button.

        Args:
            element: The button with its reference.
        """
        time.sleep(self._workload.step_delay(self._draw))
        try:
            error = self._desk.press(parse_action(f"click {element}"))
        except ActionError as problem:
            error = str(problem)
        return page(self._desk, error)

    def get_reward(self) -> float:
        return self._desk.reward
