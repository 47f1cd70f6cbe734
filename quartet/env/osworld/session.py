"""Session of OSWorld tasks in one guest."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from pathlib import Path

from quartet.env.acting_session import ActingSession
from quartet.env.deadlines import Deadlines
from quartet.env.desktop.elements import Elements
from quartet.env.osworld.guest import Guest
from quartet.env.osworld.hands import GuestHands
from quartet.env.osworld.judging import checks, score
from quartet.env.osworld.placeholders import Placeholders
from quartet.env.osworld.preparing import prepare, verbs
from quartet.env.osworld.readiness import screen_size, settled, shown, wait_for_change
from quartet.env.osworld.task import OSWorldTask, load_task
from quartet.env.osworld.tree import windows_and_nodes
from quartet.env.performing import ends_episode, perform_all
from quartet.errors import EnvError
from quartet.types import Action, Done, Infeasible, Observation, Outcome, Picture, StepResult, TakenAction, Task


class OSWorldSession(ActingSession):
    """Session in one guest. `reverting` is a command of this machine that reverts the guest before an episode."""

    def __init__(
        self,
        files: dict[str, Path],
        address: str,
        *,
        reverting: list[str],
        max_turns: int,
        launch_seconds: float,
        settle_seconds: float,
        deadlines: Deadlines,
    ) -> None:
        self._files, self._address, self._reverting, self._max_turns = files, address, reverting, max_turns
        self._launch_seconds, self._settle_seconds = launch_seconds, settle_seconds
        self._deadlines = deadlines
        self._guest: Guest | None = None
        self._over = True

    async def reset(self, task: Task) -> Observation:
        """Revert the guest, release its keys and buttons, and run the task's setup steps."""
        self._task: OSWorldTask = load_task(self._files[task.family])
        async with self._deadlines.bounded("reset", f"reset of {task.key}") as problems:
            await self.close()
            await self._revert()
            self._guest = guest = Guest(self._address, max(self._deadlines.reset, self._deadlines.step))
            width, height = await screen_size(guest, problems)
            self._hands, self._elements = GuestHands(guest, width, height), Elements(width, height)
            self._placeholders = Placeholders(width, height)
            await self._hands.release_all()
            await self._prepare(guest)
            self._turns, self._over = 0, False
            return await self._observe("")

    async def close(self) -> None:
        guest, self._guest = self._guest, None
        if guest is not None:
            await guest.close()

    async def _turn(self, actions: Sequence[Action], *unreadable: TakenAction) -> StepResult:
        """Perform actions in order. The last turn has the evaluator's score as its reward."""
        if self._over or self._guest is None:
            raise RuntimeError("step was called after the end of the episode: call reset first")
        self._turns += 1
        async with self._deadlines.bounded("step", "a step"):
            taken = [*await perform_all(actions, self._hands, ends_episode), *unreadable]
            declared = {one.outcome for one in taken if isinstance(one.action, Done | Infeasible)}
            ended = bool(declared & {Outcome.DONE, Outcome.INFEASIBLE})
            late = not ended and self._turns >= self._max_turns
            observation = await self._observe("; ".join(one.error for one in taken if one.error))
            self._over = ended or late
            reward, info = 0.0, {}
            if self._over:
                reward = await self._score(self._guest, infeasible=Outcome.INFEASIBLE in declared)
                info = {"success": reward == 1.0, "score": reward, "infeasible": self._task.infeasible}
        return StepResult(
            observation=observation, reward=reward, terminated=ended, truncated=late, info=info, actions=taken
        )

    async def _score(self, guest: Guest, *, infeasible: bool) -> float:
        """Return the score of the episode. In an infeasible task only the policy's own declaration counts."""
        if infeasible or self._task.infeasible:
            return float(infeasible and self._task.infeasible)
        evaluator = self._task.evaluator
        await prepare(guest, verbs(evaluator.postconfig), self._placeholders)
        return await score(guest, checks(evaluator), evaluator.conj)

    async def _prepare(self, guest: Guest) -> None:
        """Run the task's setup steps. If they start a program, wait until it shows."""
        steps = verbs(self._task.config)
        before = await shown(guest) if any(step.opens for step in steps) else None
        await prepare(guest, steps, self._placeholders)
        if before is not None:
            await wait_for_change(guest, before, self._launch_seconds)

    async def _observe(self, error: str) -> Observation:
        assert self._guest is not None
        picture, tree = await settled(self._guest, self._settle_seconds)
        listing = self._elements.listing(*windows_and_nodes(tree))
        self._hands.items = {str(item.ref): item for item in listing.items}
        pictures = [Picture(data=picture)]
        return Observation(goal=self._task.instruction, text=listing.text, error=error, pictures=pictures)

    async def _revert(self) -> None:
        if not self._reverting:
            return
        command = [part.replace("{address}", self._address) for part in self._reverting]
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, start_new_session=True)
        except OSError as error:
            raise EnvError(f"cannot run {command[0]}: {error.strerror}", "fix env.revert_command") from error
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:  # the reset has ended before
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code:
            raise EnvError(f"the revert command {command[0]} ended with exit code {code}", "fix env.revert_command")
