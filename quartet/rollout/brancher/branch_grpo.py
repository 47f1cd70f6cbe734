"""Brancher of BranchGRPO: every rollout is forked before fixed calls."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from quartet.config.section import Positive, Section
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call


class BranchGrpoBrancher(Brancher):
    """Fork each rollout, also a forked one, before the calls with these indices.

    With one child, each of K calls doubles the rollouts: 2^K leaves per root. In BranchGRPO the depths are denoising
    steps of a diffusion model; here a depth is a call. `rollout.brancher.max_forks_per_group` must leave room for all
    forks, or the last ones are missing. A child is not forked again before the call at which it was forked itself.
    """

    class Settings(Section):
        calls: list[Annotated[int, Field(ge=1)]] = [1, 2]
        """Indices, from 0, of the calls before which rollouts are forked."""
        children: Positive = 1
        """Number of children before each of these calls."""

    settings: Settings
    source = "BranchGRPO, arXiv 2509.06040, split points"

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        own = not call.borrowed
        return self.settings.children if own and len(so_far) in self.settings.calls else 0
