"""A fast port: MiniGrid's empty rooms as text, in plain Python instead of arrays.

    cd examples
    quartet env compare gymnasium fast_port --set 'reference.ids=["minigrid:MiniGrid-Empty-5x5-v0"]'

The command plays this port and the adapter of Gymnasium with equal actions. It ends at the first difference in what a
policy reads, in a reward or in an end, or prints how much faster the port is.
"""

import re

from quartet.env.base import Environment
from quartet.types import Observation, StepResult, Task

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
USAGE = f"one of {', '.join(ACTIONS)}"
GOAL = f"get to the green goal square\nActions: {USAGE}."
NAME = re.compile(rf"(?<!\w)(?:{'|'.join(ACTIONS)})(?!\w)", re.IGNORECASE)
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Steps right, down, left and up."""
DEPTH, HALF_WIDTH = 6, 3
"""Cells that the agent sees ahead and to each side."""


class EmptyRoom:
    """One session: a square room with walls around it and the goal in its lower right corner."""

    async def reset(self, task: Task) -> Observation:
        self.size = int(task.family.split("-")[2].partition("x")[0])
        self.x, self.y, self.direction, self.steps = 1, 1, 0, 0
        return self.look()

    async def step(self, action: str) -> StepResult:
        named = NAME.findall(action)
        if not named:
            return StepResult(observation=self.look(f"no action: write {USAGE}"), reward=0.0, terminated=False)
        self.steps += 1
        self.move(named[-1].lower())
        solved = self.x == self.y == self.size - 2
        limit = 4 * self.size**2
        ended = solved or self.steps >= limit
        return StepResult(
            observation=self.look(),
            reward=1 - 0.9 * (self.steps / limit) if solved else 0.0,
            terminated=solved,
            truncated=self.steps >= limit,
            info={"success": solved} if ended else {},
        )

    def move(self, action: str) -> None:
        """Turn, or step forward unless a wall is there; other actions do nothing in an empty room."""
        if action == "left":
            self.direction = (self.direction - 1) % 4
        elif action == "right":
            self.direction = (self.direction + 1) % 4
        elif action == "forward":
            step_x, step_y = STEPS[self.direction]
            if 0 < self.x + step_x < self.size - 1 and 0 < self.y + step_y < self.size - 1:
                self.x, self.y = self.x + step_x, self.y + step_y

    def look(self, error: str = "") -> Observation:
        """Describe the nearest walls and the goal, relative to the agent."""
        far = self.size - 1
        walls = [far - self.x, far - self.y, self.x, self.y]  # distances to the right, down, left and up
        ahead, right, left = (walls[(self.direction + turn) % 4] for turn in (0, 1, 3))
        lines = [
            f"wall: {distance} {where}"
            for distance, where, seen in (
                (ahead, "ahead", DEPTH), (left, "to the left", HALF_WIDTH), (right, "to the right", HALF_WIDTH)
            )
            if distance <= seen
        ]  # fmt: skip
        lines += self.goal()
        return Observation(goal=GOAL, text="\n".join([*lines, "carrying: nothing"]), error=error)

    def goal(self) -> list[str]:
        """Describe the goal, if it is in view."""
        (ahead_x, ahead_y), (right_x, right_y) = STEPS[self.direction], STEPS[(self.direction + 1) % 4]
        x, y = self.size - 2 - self.x, self.size - 2 - self.y
        ahead, side = x * ahead_x + y * ahead_y, x * right_x + y * right_y
        if not 0 <= ahead <= DEPTH or abs(side) > HALF_WIDTH or ahead == side == 0:
            return []
        parts = [f"{ahead} ahead"] if ahead else []
        parts += [f"{abs(side)} to the {'right' if side > 0 else 'left'}"] if side else []
        return [f"green goal: {', '.join(parts)}"]

    async def close(self) -> None:
        """Release nothing."""


class FastEmpty(Environment):
    """MiniGrid's empty room of 5 x 5 cells."""

    deterministic = True
    grammar = USAGE

    def families(self) -> list[str]:
        return ["minigrid:MiniGrid-Empty-5x5-v0"]

    def session(self) -> EmptyRoom:
        return EmptyRoom()
