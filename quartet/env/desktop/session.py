"""Session of desktop tasks: a new desktop for every episode."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from Xlib.error import ConnectionClosedError

from quartet.env.acting_session import ActingSession
from quartet.env.deadlines import Deadlines
from quartet.env.desktop.deadline import Deadline
from quartet.env.desktop.desktop import ACTIONS_SETTLE_SECONDS, SETTLE_SECONDS, Desktop
from quartet.env.desktop.hands import DesktopHands
from quartet.env.desktop.task.family import DesktopTask, load_task
from quartet.env.performing import ends_episode, perform_all
from quartet.env.session_thread import SessionThread
from quartet.errors import EnvError
from quartet.types import Action, Done, Infeasible, Observation, Outcome, Picture, StepResult, TakenAction, Task


class SessionSettings(Struct, frozen=True):
    """Settings of a session's desktops."""

    width: int
    height: int
    confined: bool
    screenshots: bool
    deadlines: Deadlines


class DesktopSession(ActingSession):
    """Session that plays one episode at a time. Its thread makes the desktop's calls, which block."""

    def __init__(self, files: dict[str, Path], settings: SessionSettings) -> None:
        """Make a session without a desktop. `files` are the families' files by name."""
        self._files, self._settings = files, settings
        self._thread = SessionThread()
        self._desktop: Desktop | None = None
        self._closed, self._over = False, True

    @property
    def desktop(self) -> Desktop:
        """The desktop of the episode."""
        assert self._desktop is not None
        return self._desktop

    async def reset(self, task: Task) -> Observation:
        """End the last desktop, start a new one and prepare the task."""
        self._task = load_task(self._files[task.family], task.seed)
        async with self._bounded("reset", f"reset of {task.key}"):
            return await self._thread.call(self._reset, self._task)

    async def close(self) -> None:
        """End the desktop. A call that still waits for it fails."""
        self._closed = True
        self._thread.close()
        if self._desktop is not None:
            await asyncio.to_thread(self._desktop.close)

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        """Perform one action, once the desktop is quiet after the one before. Return the action's points."""
        return await self._thread.call(self._perform, action)

    async def release(self) -> None:
        """Release all keys and buttons that are down."""
        await self._thread.call(self.desktop.devices.release_all)

    async def _turn(self, actions: Sequence[Action], *unreadable: TakenAction) -> StepResult:
        """Perform actions in order. `info` of the last turn has `success`, `score`, `infeasible` and `reason`.

        The reward is the score of the desktop's state when the policy declares the end or has used its turns.
        """
        if self._over:
            raise RuntimeError("step was called after the end of the episode: call reset first")
        self._turns += 1
        self.desktop.patience_seconds = ACTIONS_SETTLE_SECONDS
        async with self._bounded("step", "a step"):
            taken = [*await perform_all(actions, self, ends_episode), *unreadable]
            ends = {one.outcome: one.action for one in taken if isinstance(one.action, Done | Infeasible)}
            declared = Outcome.DONE in ends or Outcome.INFEASIBLE in ends
            return await self._thread.call(partial(self._result, taken, declared, Outcome.INFEASIBLE in ends))

    @asynccontextmanager
    async def _bounded(self, phase: Literal["reset", "step"], what: str) -> AsyncIterator[None]:
        try:
            async with self._settings.deadlines.bounded(phase, what):
                yield
        except (ConnectionClosedError, ConnectionError) as error:
            raise EnvError(f"{what} failed: the desktop's X server or accessibility bus is gone: {error}") from error

    # ------------------------------------------------------------------------------------------ in the session's thread

    def _reset(self, task: DesktopTask) -> Observation:
        if self._desktop is not None:
            self._desktop.close()
        deadline = Deadline(self._settings.deadlines.reset)
        size = self._settings.width, self._settings.height
        self._desktop = desktop = Desktop(*size, confined=self._settings.confined, deadline=deadline)
        if self._closed:  # while the desktop started
            desktop.close()
            raise EnvError("the session was closed while its desktop started")
        self._hands = DesktopHands(desktop)
        for step in task.setup:
            step.apply(desktop, deadline)
        self._turns, self._over = 0, False
        self._look()
        return self._observe("")

    def _perform(self, action: Action) -> list[tuple[float, float]]:
        if isinstance(action, Done | Infeasible):
            return []
        if self._acted:
            self._look()
        self._acted = True
        return self._hands.perform(action, self._listing.items)

    def _look(self) -> None:
        """Wait until the desktop is quiet, and read its elements."""
        self.desktop.settle()
        self._listing, self._acted = self.desktop.listing(), False

    def _result(self, taken: list[TakenAction], declared: bool, infeasible: bool) -> StepResult:
        late = not declared and self._turns >= self._task.max_turns
        self._over = declared or late
        self.desktop.patience_seconds = SETTLE_SECONDS  # for the observation, whatever the actions have used
        self._look()
        observation = self._observe("; ".join(one.error for one in taken if one.error))
        score, info = 0.0, {}
        if self._over:
            score = self._score(infeasible=infeasible)
            reason = "no turns left" if late else "declared infeasible" if infeasible else "done"
            info = {"success": score == 1.0, "score": score, "infeasible": self._task.infeasible, "reason": reason}
        return StepResult(
            observation=observation, reward=score, terminated=declared, truncated=late, info=info, actions=taken
        )

    def _score(self, *, infeasible: bool) -> float:
        """Return the score of the episode. In an infeasible task only the policy's own declaration counts."""
        if infeasible or self._task.infeasible:
            return float(infeasible and self._task.infeasible)
        return self._task.evaluator.score(self.desktop)

    def _observe(self, error: str) -> Observation:
        pictures = [Picture(data=self.desktop.screen.picture())] if self._settings.screenshots else []
        return Observation(goal=self._task.instruction, text=self._listing.text, error=error, pictures=pictures)
