"""Which strategies and combinations have the most success per token on `locks`? The candidates of `best_locks`.

python -m benchmarks.strategies --method best_locks_tuning --seeds 0-4 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Settings
from benchmarks.strategies.base import Strategy, higher
from benchmarks.strategies.self_imitation import imitation

FIRST_3 = ("control.allocator=screened", "control.allocator.first_rollouts=3")
FIRST_4 = ("control.allocator=screened",)
DYNAMIC = ("control.allocator=dynamic",)
LENGTH = ("control.horizon=longest_success",)
SHORT = ("credit.name=ro_recomp",)
POOL = ("replay.name=success_pool", "replay.rule=recompute", "replay.mode=substitute", "replay.max_replays=32")
IMITATION = tuple(imitation(0.1))

CANDIDATES: dict[str, Settings] = {
    "first 3": FIRST_3,
    "first 4": FIRST_4,
    "dynamic": DYNAMIC,
    "length": LENGTH,
    "short": SHORT,
    "max_rl": ("credit.name=max_rl",),
    "pool": POOL,
    "imitation": IMITATION,
    "contrast": ("control.sampler=contrast",),
    "first 3, short": (*FIRST_3, *SHORT),
    "first 3, pool": (*FIRST_3, *POOL),
    "first 3, imitation": (*FIRST_3, *IMITATION),
    "first 3, length, short": (*FIRST_3, *LENGTH, *SHORT),
    "first 3, short, imitation": (*FIRST_3, *SHORT, *IMITATION),
}
"""Settings by candidate: one strategy each, and combinations of a small first round with others."""


class Main(Strategy):
    """Plain GRPO and the candidates."""

    arms: ClassVar = {"grpo": []} | CANDIDATES
    claims = tuple(higher(f"{name}: more success per token", name, "grpo") for name in CANDIDATES)
