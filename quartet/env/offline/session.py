"""Session that follows a recording: states are the expert's, the history is the policy's own."""

import random
from collections.abc import Mapping

from quartet import config
from quartet.actions.taken import taken_action
from quartet.env.offline.matching import compare
from quartet.env.offline.recordings import Recording, Recordings
from quartet.errors import ConfigError, EnvError, nearest
from quartet.types import Observation, StepResult, Task

FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed


class OfflineSession:
    """Session of one recording at a time.

    An action that agrees with the expert's leads to the next recorded state. Another one ends the episode, or is
    patched: the expert's action takes its place in the history of later prompts, while the policy's own response is
    what is trained.
    """

    def __init__(self, recordings: Mapping[str, Recordings], max_patches: int | None) -> None:
        self._recordings, self._max_patches = recordings, max_patches
        self._recording: Recording | None = None

    async def reset(self, task: Task) -> Observation:
        """Begin a recording. Raise `ConfigError` for an unknown family and for a held-out seed without recordings."""
        if task.family not in self._recordings:
            raise ConfigError(f"no recordings of {task.family!r}", nearest(task.family, self._recordings))
        self._recording = _chosen(self._recordings[task.family], task)
        self._place, self._patches = 0, 0
        return self._recording[0].observation

    async def step(self, action: str) -> StepResult:
        """Compare an action with the expert's. `info["success"]` is True if all actions agreed."""
        if self._recording is None:
            raise EnvError("a recording was stepped before its first reset", "call reset(task) first")
        step = self._recording[self._place]
        compared = compare(action, step.action)
        patched = not compared.matches and (self._max_patches is None or self._patches < self._max_patches)
        self._patches += patched
        self._place += compared.matches or patched
        ended = self._place == len(self._recording)
        seen = step.observation if ended else self._recording[self._place].observation
        return StepResult(
            observation=seen,
            reward=sum(compared.rewards.values()),
            rewards=compared.rewards,
            terminated=ended or not (compared.matches or patched),
            info={"success": ended and not self._patches},
            actions=[taken_action(step.action if patched else action)],
        )

    async def close(self) -> None:
        self._recording = None


def _chosen(recordings: Recordings, task: Task) -> Recording:
    """Return the recording of a task: by its seed in training, drawn by its seed from the held-out ones."""
    if task.seed < FIRST_HELD_OUT_SEED:
        return recordings.training[task.seed % len(recordings.training)]
    if not recordings.held_out:
        raise ConfigError(f"no recording of {task.family!r} is held out", "raise env.held_out_share")
    return random.Random(task.key).choice(recordings.held_out)
