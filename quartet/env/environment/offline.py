"""UI-S1's semi-online learning: recorded successes of an expert are the environment (Lu and others 2025).

An episode shows the states of one recording. The prompts of the loop `latest` show the policy's own earlier actions, so
that a policy learns to continue what it has done itself, without any live environment. `max_patches` is the paper's
epsilon. With 0 an evaluation is the paper's semi-online metric: the success rate is its task success rate (TSR).
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from quartet.config.section import Fraction, LocalPath, Section
from quartet.env.base import Env, Environment
from quartet.env.offline.recordings import Recordings, read_recordings
from quartet.env.offline.session import OfflineSession
from quartet.shipped import recipes_folder

EXAMPLE = recipes_folder() / "miniwob" / "demonstrations.jsonl"
"""Recordings of a first recipe."""


class Offline(Environment):
    """Recorded successes of an expert: a turn's reward is its agreement with the expert's action."""

    class Settings(Section):
        data: LocalPath
        """JSONL file of recordings: one turn per line, as a chat of two messages, with `family`, `seed` and `turn`.
        Exports of rollouts as chats have this form."""
        max_patches: Annotated[int, Field(ge=0)] | None = None
        """Number of deviations per episode (epsilon) after which the episode continues with the expert's action in
        place of the policy's; the next deviation ends it. Without a value there is no limit."""
        held_out_share: Fraction = 0.2
        """Share of each family's recordings that are used in evaluations only."""

    settings: Settings
    first_settings = {
        "env": {"data": str(EXAMPLE), "max_patches": 1, "screenshots": False},
        "control": {"horizon": ["suite"]},
    }
    grammar = "an action of Quartet's grammar, such as `click LABEL [1]`"
    deterministic = True
    source = "UI-S1, arXiv 2509.11543, algorithm 1; thought-free patches"

    @cached_property
    def recordings(self) -> Mapping[str, Recordings]:
        """The recordings by family."""
        return read_recordings(Path(self.settings.data), self.settings.held_out_share)

    def families(self) -> list[str]:
        return list(self.recordings)

    def session(self) -> Env:
        return OfflineSession(self.recordings, self.settings.max_patches)

    def num_train_tasks(self, family_name: str) -> int:
        return len(self.recordings[family_name].training)

    def num_held_out_tasks(self, family_name: str) -> int:
        return len(self.recordings[family_name].held_out)

    def max_turns(self, family_name: str) -> int:
        of_family = self.recordings[family_name]
        return max(len(one) for one in [*of_family.training, *of_family.held_out])
