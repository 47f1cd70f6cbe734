"""Does RoRecomp open more locks at the first try, since it prefers successes without wrong presses?

The main figure is the success without any wrong press. At half of the locks a wrong press costs further presses, and
plain GRPO rewards a success with them as much as one without.
"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


class Main(Strategy):
    """Plain GRPO and RoRecomp; and with half of the members, RoRecomp with and without compensation."""

    budget_tokens = 8_000
    arms: ClassVar = {
        "all members": [],
        "ro_recomp": ["credit.name=ro_recomp"],
        "half": ["credit.name=ro_recomp", "credit.share=0.5"],
        "half, no compensation": ["credit.name=ro_recomp", "credit.share=0.5", "credit.compensation=0"],
    }
    claims = (
        higher("RoRecomp: more success at the first try", "ro_recomp", "all members"),
        higher("compensation: more success at the first try than without", "half", "half, no compensation"),
    )
