"""Matching pennies for two players: both show a side of a coin without seeing the other's.

The first player wins if the sides are equal, the second if they differ. In the only equilibrium both show each side
half of the time, so each player learns to exploit any preference of the other.
"""

from quartet.actions.grammar import ActionError, clicked, parse_action
from quartet.env.base import Env, Environment
from quartet.errors import ConfigError, EnvError, nearest
from quartet.types import Observation, StepResult, Task

FAMILIES = ["pennies"]
SIDES = ["heads", "tails"]
PAGE = "\n".join(f"button {side} [{ref}]" for ref, side in enumerate(SIDES, 1))
GOALS = ("Show the same side as the other player.", "Show another side than the other player.")


class Pennies(Environment):
    """Two players show a side of a coin: one wins when the sides are equal, the other when they differ."""

    grammar = "`click heads [1]` or `click tails [2]`"
    source = "von Neumann and Morgenstern 1944, Theory of Games and Economic Behavior"
    first_settings = {"rollout": {"max_turns": 1}}

    def families(self) -> list[str]:
        return FAMILIES

    def session(self) -> Env:
        return PenniesEnv()

    def max_turns(self, family_name: str) -> int | None:
        return 1


class PenniesEnv:
    """One session: a step of each player, then the rewards of both in `info["rewards"]`."""

    def __init__(self) -> None:
        self._shown: list[str] | None = None

    async def reset(self, task: Task) -> Observation:
        """Start a game. Raise `ConfigError` for an unknown family."""
        if task.family not in FAMILIES:
            raise ConfigError(f"unknown pennies family {task.family!r}", nearest(task.family, FAMILIES))
        self._shown = []
        return Observation(goal=GOALS[0], text=PAGE)

    async def step(self, action: str) -> StepResult:
        """Show a side; a player whose action shows no side loses."""
        if self._shown is None:
            raise EnvError("matching pennies was stepped before its first reset", "call reset(task) first")
        side, error = _side(action)
        self._shown.append(side)
        observation = Observation(goal=GOALS[1], text=PAGE, error=error)
        if len(self._shown) < len(GOALS):
            return StepResult(observation=observation, reward=0.0, terminated=False)
        first, second = self._shown
        rewards = [float(bool(first) and first == second), float(bool(second) and first != second)]
        return StepResult(observation=observation, reward=0.0, terminated=True, info={"rewards": rewards})

    async def close(self) -> None:
        self._shown = None


def _side(action: str) -> tuple[str, str]:
    """Return (side, "") for an action that shows a side, and ("", error) for any other."""
    try:
        ref = clicked(parse_action(action))
    except ActionError as error:
        return "", str(error)
    if ref is None or not 1 <= ref <= len(SIDES):
        return "", "click heads [1] or click tails [2]"
    return SIDES[ref - 1], ""
