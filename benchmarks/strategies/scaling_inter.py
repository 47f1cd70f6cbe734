"""Do turn limits that grow during training help, against fixed short and long ones?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher

STAGED = ("control.horizon=staged", "control.horizon.train_steps=[0,10,25]")


class Main(Strategy):
    """A fixed limit of 24 turns, as if the length of a task were not known, against one of 6, which is just enough for
    the hardest lock, stages from 6 to 24, and as a control the same stages in reverse."""

    budget_tokens = 60_000
    common = ("rollout.max_turns=24", "engine.max_context_tokens=192")
    arms: ClassVar = {
        "24 turns": [],
        "6 turns": ["control.horizon=staged", "control.horizon.max_turns=[6]"],
        "6, 12, 24 turns": [*STAGED, "control.horizon.max_turns=[6,12,24]"],
        "24, 12, 6 turns": [*STAGED, "control.horizon.max_turns=[24,12,6]"],
    }
    claims = (
        higher("stages: more success per token than a long limit", "6, 12, 24 turns", "24 turns"),
        higher("stages: more success per token than a short limit", "6, 12, 24 turns", "6 turns"),
        higher("stages: more success at the end than a short limit", "6, 12, 24 turns", "6 turns", "end"),
        higher("growing stages: more than shrinking ones", "6, 12, 24 turns", "24, 12, 6 turns"),
    )
