"""Does CLEANER's rollback give more success at the first try than plain GRPO, where many presses fail?"""

from pathlib import Path
from typing import ClassVar

from benchmarks.locks.clumsy import make_clumsy_start
from benchmarks.strategies.base import Strategy, higher

FAMILIES = 'env.families=["latch","hook","knob","bolt","chain","drum"]'
"""Easy and medium locks. They have two to five buttons; the start presses seven equally often."""


class Main(Strategy):
    """Plain GRPO, against the same with the loop `cleaner`. All claims are about equal tokens, failed presses included.

    A press of a missing button fails, changes nothing and may be tried again, at the cost of a turn. GRPO rewards it
    with the rest of a success; CLEANER trains the repaired press in its place.
    """

    common = (FAMILIES,)
    arms: ClassVar = {
        "grpo": [],
        "cleaner": ["rollout.loop=cleaner", "rollout.history=latest"],
    }
    claims = (
        higher("CLEANER: more success at the first try per token", "cleaner", "grpo"),
        higher("CLEANER: more success of episodes, with retries, at the end", "cleaner", "grpo", "end"),
    )
    budget_tokens = 10_000

    @classmethod
    def start_name(cls) -> str:
        return f"{cls.suite}-clumsy"

    @classmethod
    def make_start(cls, folder: Path) -> Path:
        return make_clumsy_start(folder, cls.suite)
