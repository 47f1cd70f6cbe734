"""Session of a Gymnasium environment; its methods are plain functions, which run in a thread of the session."""

from collections.abc import Callable, Sequence
from typing import Any

from quartet.actions.error import ActionError
from quartet.env.gym.actions import reader_of
from quartet.env.gym.text import Describe, describe_for
from quartet.env.threaded_session import ThreadedSession
from quartet.types import Observation, Outcome, StepResult, TakenAction, Task, Text

TOLERANCE = 1e-9
"""Rounding error of a sum of rewards that still is a success."""


class GymSession(ThreadedSession):
    """One session; the environment is made at the first reset of a family, and kept."""

    def __init__(
        self,
        make: Callable[[str], Any],
        action_names: Sequence[str],
        describe: Describe | None,
        success_reward: float | None,
    ) -> None:
        super().__init__()
        self._make, self._names, self._describe, self._success_reward = make, action_names, describe, success_reward
        self._env: Any = None
        self._family = ""

    def reset(self, task: Task) -> Observation:
        """Start an episode with the task's seed."""
        with self.using():
            self._return = 0.0
            observation, _ = self._of(task.family).reset(seed=task.seed)
            return self._observe(observation)

    def step(self, action: str) -> StepResult:
        """Take the action that the response names; a response without one changes nothing."""
        with self.using():
            return self._step(action)

    def _of(self, family: str) -> Any:
        """Return the environment of a family, which is kept only if its actions can be read and its views described."""
        if self._env is None or self._family != family:
            self._release()
            env = self._make(family)
            try:
                reader, text = reader_of(env, self._names), self._describe or describe_for(env)
            except BaseException:
                env.close()
                raise
            self._env, self._family, self._reader, self._text = env, family, reader, text
        return self._env

    def _step(self, action: str) -> StepResult:
        try:
            chosen, name = self._reader.read(action)
        except ActionError as error:
            refused = TakenAction(outcome=Outcome.PARSE_ERROR, error=str(error))
            seen = self._observe(self._seen, str(error))
            return StepResult(observation=seen, reward=0.0, terminated=False, actions=[refused])
        observation, reward, terminated, truncated, info = self._env.step(chosen)
        self._return += float(reward)
        ended = terminated or truncated
        return StepResult(
            observation=self._observe(observation),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"success": self._succeeded(info, terminated and reward > 0)} if ended else {},
            actions=[TakenAction(action=Text(text=action), canonical=name)],
        )

    def _succeeded(self, info: dict[str, Any], rewarded_end: bool) -> bool:
        """Return whether the episode that ends is a success; `rewarded_end` counts where nothing else defines one."""
        if self._success_reward is None and "is_success" in info:
            return bool(info["is_success"])
        registered = self._env.unwrapped.spec.reward_threshold if self._env.unwrapped.spec else None
        least = registered if self._success_reward is None else self._success_reward
        return bool(rewarded_end) if least is None else self._return >= least - TOLERANCE

    def _observe(self, observation: Any, error: str = "") -> Observation:
        self._seen = observation
        mission = observation.get("mission", "") if isinstance(observation, dict) else ""
        goal = f"{mission}\n" if mission else ""
        text = self._text(self._env, observation)
        return Observation(goal=f"{goal}Actions: {self._reader.usage}.", text=text, error=error)

    def _release(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
