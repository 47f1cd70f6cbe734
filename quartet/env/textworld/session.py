"""Session of a game of TextWorld; its methods are plain functions, which run in a thread of the session."""

from collections.abc import Callable, Sequence
from typing import Any

from quartet.env.threaded_session import ThreadedSession
from quartet.errors import EnvError
from quartet.types import Observation, Outcome, StepResult, TakenAction, Task, Text

LONGEST_COMMAND = 100
"""Maximum number of characters of a command; the interpreter of the games has a buffer of 200."""


class TextWorldSession(ThreadedSession):
    """One session: an interpreter of games."""

    def __init__(self, start: Callable[[Task], Any], shown: Sequence[str], progress_reward: float) -> None:
        super().__init__()
        self._start, self._shown, self._progress_reward = start, shown, progress_reward
        self._game: Any = None

    def reset(self, task: Task) -> Observation:
        """Start the game of the task."""
        with self.using():
            self._release()
            self._game = self._start(task)
            self._state = self._game.reset()
            return self._observe(self._state["objective"])

    def step(self, action: str) -> StepResult:
        """Pass the last line of the response to the game. A command that is not possible now is an error."""
        with self.using():
            return self._step(action)

    def _step(self, action: str) -> StepResult:
        if self._game is None:
            raise EnvError("a session of TextWorld was stepped before its first reset", "call reset(task) first")
        command = " ".join(action.strip().rpartition("\n")[2].split())
        if not command or len(command) > LONGEST_COMMAND or not command.isprintable() or not command.isascii():
            error = f"write a command of at most {LONGEST_COMMAND} characters"
            taken = TakenAction(action=Text(text=action), outcome=Outcome.PARSE_ERROR, error=error)
            return StepResult(observation=self._observe(error=error), reward=0.0, terminated=False, actions=[taken])
        possible, before = command in self._state["admissible_commands"], self._state.get("score") or 0
        self._state, score, done = self._game.step(command)
        error = "" if possible else self._state["feedback"].strip()
        rewards = {"score": (score - before) / self._state["max_score"]}
        if self._progress_reward:
            rewards["progress"] = self._progress_reward * self._state["intermediate_reward"]
        outcome = Outcome.DONE if possible else Outcome.REFUSED
        return StepResult(
            observation=self._observe(error=error),
            reward=sum(rewards.values()),
            rewards=rewards,
            terminated=bool(done),
            info={"success": bool(self._state["won"])} if done else {},
            actions=[TakenAction(action=Text(text=action), canonical=command, outcome=outcome, error=error)],
        )

    def _observe(self, goal: str = "", error: str = "") -> Observation:
        """Return the game's answer and what the settings show besides it; an error takes the place of the answer."""
        shown = {name: self._state[name] for name in self._shown}
        commands = shown.pop("admissible_commands", None)
        texts = ["" if error else self._state["feedback"], *shown.values()]
        if commands is not None:
            texts.append(f"Commands: {', '.join(commands)}.")
        return Observation(goal=goal, text="\n\n".join(text.strip() for text in texts if text.strip()), error=error)

    def _release(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None
