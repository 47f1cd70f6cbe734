"""Does GRPO learn as much where old pages are placeholders (WebAgent-R1) as where it reads all of them?"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim
from benchmarks.strategies.base import Strategy


class Main(Strategy):
    """One conversation per rollout, with all pages or with a placeholder for all but the newest page.

    The initial policy reads both forms of prompts. The newest page decides the right press, as on most web pages; a
    task that asks for what an earlier page showed cannot be solved with placeholders. The learning rate was tuned for
    all pages on seeds 0 to 2; with twice as much one of these runs collapsed.
    """

    form = "conversations"
    common = (
        *("rollout.loop=screens", "engine.max_context_tokens=384", "train.max_tokens_per_microbatch=16384"),
        "train.learning_rate=1e-3",
    )
    arms: ClassVar = {"all": ["rollout.history=all"], "compressed": ["rollout.history=compressed"]}
    claims = (
        Claim(
            text="placeholders: at most 3 points less success per token",
            arm="compressed",
            against="all",
            figure="area",
            above=-0.03,
        ),
    )
