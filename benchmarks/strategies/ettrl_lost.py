"""The experiment `ettrl`, where a rollout is most uncertain after its mistake, so that forks come too late."""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.ettrl import Answers, chances
from benchmarks.strategies.ettrl import Main as KeptThread


class LostThread(Answers):
    """After a wrong press a rollout reads second pages, on which all buttons are equally likely at first."""

    def __init__(self, chances_QT: np.ndarray) -> None:
        super().__init__(chances_QT, guided=1 / 4)

    def reads_second_page(self, *, guided: bool, right: bool) -> bool:
        return not right


class Main(KeptThread):
    """The forks of most rollouts share a mistake, so the claims should be refuted."""

    votes_of_equal_tokens: ClassVar[int] = 39
    arms: ClassVar = {**KeptThread.arms, "equal tokens": [f"control.rollouts_per_group={votes_of_equal_tokens}"]}

    def world(self, seed: int) -> LostThread:
        return LostThread(chances(seed))
