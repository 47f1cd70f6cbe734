"""A start that often presses buttons that a lock does not have, so that many actions fail and can be tried again.

It is uniform over the same number of buttons at every sign, and has read the errors of such presses.
"""

import random
from pathlib import Path

from msgspec.structs import replace

from benchmarks.locks.start import MOST_BUTTONS, MOST_EARLIER_ACTIONS, start_of
from quartet.env.environment.locks import JAMMED, ROOMS, SUITES, signs
from quartet.policy.prompt import turn_text
from quartet.types import Observation

SHARE_OF_ERRORS = 0.5
"""Share of the imitated pages that follow a failed press."""


def make_clumsy_start(folder: Path, suite: str) -> Path:
    """Make the policy in `folder`, and return its folder. The result is deterministic."""
    words = [sign for family in SUITES[suite] for sign in signs(family)]
    return start_of(folder, dict.fromkeys([*words, JAMMED], MOST_BUTTONS), _chat)


def _chat(sign: str, press: int, draw: random.Random) -> dict[str, list[dict[str, str]]]:
    """Return a chat of one turn with a random number of earlier actions, the last of which may have failed."""
    earlier = [draw.randint(1, MOST_BUTTONS) for _ in range(draw.randrange(MOST_EARLIER_ACTIONS + 1))]
    page = Observation(goal=f"Open {draw.choice(ROOMS)}.", text=f"heading {sign}")
    if earlier and draw.random() < SHARE_OF_ERRORS:
        page = replace(page, error=f"no element [{earlier[-1]}]")
    user = {"role": "user", "content": turn_text(page, [f"click [{button}]" for button in earlier])}
    return {"messages": [user, {"role": "assistant", "content": f"click [{press}]"}]}
