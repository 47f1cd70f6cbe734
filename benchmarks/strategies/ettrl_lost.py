"""The experiment `ettrl`, where a rollout is most uncertain after its mistake, so that forks come too late."""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.base import higher
from benchmarks.strategies.ettrl import TASKS, TURNS, Answers
from benchmarks.strategies.ettrl import Main as KeptThread


class LostThread(Answers):
    """After a wrong press a rollout reads pages of its own, on which all buttons are equally likely at first."""

    def __init__(self, chances_QT: np.ndarray) -> None:
        super().__init__(chances_QT, guided=1 / 4)

    def shown(self, task: int, turn: int, *, guided: bool, right: bool) -> int:
        return super().shown(task, turn, guided=not right, right=right)


class Main(KeptThread):
    """The forks of most rollouts share a mistake, so the claims on labels should be refuted. Rollouts with mistakes are
    more uncertain than others, so EAR has entropies to tell them apart, which it lacks where all rollouts read the same
    pages."""

    arms: ClassVar = KeptThread.arms | {
        "ttrl, ear": ["credit.name=ear", "credit.labels=majority"],
        "forks, ear": [*KeptThread.arms["forks"], "credit.name=ear", "credit.labels=majority"],
    }
    claims = (
        *KeptThread.claims,
        higher("EAR: more success per token than TTRL", "ttrl, ear", "ttrl"),
        higher("EAR: more success per token beside ETTRL's forks", "forks, ear", "forks"),
    )

    def world(self, seed: int) -> LostThread:
        return LostThread(np.random.default_rng(seed).uniform(0.35, 0.9, (TASKS, TURNS)))
