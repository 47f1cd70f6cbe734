"""Observations of Gymnasium environments as text."""

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy

Describe = Callable[[Any, Any], str]
"""Function of an environment and its observation."""
UNSEEN = ("unseen", "empty", "floor")
"""Kinds of MiniGrid's cells that are not described."""
_CODE = re.compile(r"\x1b\[[\d;]*m")
_COLOURED = re.compile(r"\x1b\[[\d;]+m(.)\x1b\[0m")
DOOR_STATES = ("open", "closed", "locked")


def ansi(env: Any, observation: Any) -> str:
    """Return the environment's own text, of its render mode `ansi`, with coloured characters in brackets."""
    return _CODE.sub("", _COLOURED.sub(r"[\1]", str(env.render())))


def values(env: Any, observation: Any) -> str:
    """Return the numbers of an observation: one line per entry of a dictionary."""
    if isinstance(observation, dict):
        return "\n".join(f"{name}: {_value(value)}" for name, value in observation.items())
    return _value(observation)


def minigrid(env: Any, observation: Any) -> str:
    """Return the objects of the agent's field of view, the nearest first, with their positions relative to the agent,
    which stands at the middle of the lower edge and looks ahead."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    image = observation["image"]
    width, depth = image.shape[:2]
    seen: list[tuple[int, str]] = []
    carried = "nothing"
    for (column, row), kind in numpy.ndenumerate(image[:, :, 0]):
        name, ahead, side = IDX_TO_OBJECT[int(kind)], depth - 1 - row, column - width // 2
        if name in UNSEEN:
            continue
        what = f"{IDX_TO_COLOR[int(image[column, row, 1])]} {name}"
        if name == "door":
            what = f"{DOOR_STATES[int(image[column, row, 2])]} {what}"
        if (ahead, side) == (0, 0):
            carried = what
        elif name != "wall":
            seen.append((ahead + abs(side), f"{what}: {_position(ahead, side)}"))
    return "\n".join([*_walls(image), *(line for _, line in sorted(seen)), f"carrying: {carried}"])


def _walls(image: Any) -> list[str]:
    """Return the nearest wall ahead and on each side, which stops the agent."""
    from minigrid.core.constants import OBJECT_TO_IDX

    is_wall = image[:, :, 0] == OBJECT_TO_IDX["wall"]
    middle, last = image.shape[0] // 2, image.shape[1] - 1
    rays = {
        "ahead": is_wall[middle, last - 1 :: -1],
        "to the left": is_wall[middle - 1 :: -1, last],
        "to the right": is_wall[middle + 1 :, last],
    }
    return [f"wall: {int(ray.argmax()) + 1} {where}" for where, ray in rays.items() if ray.any()]


def describe_for(env: Any) -> Describe:
    """Return the description that suits an environment: `ansi`, else MiniGrid's view, else values."""
    spaces = getattr(env.observation_space, "spaces", {})
    if env.render_mode == "ansi":
        return ansi
    return minigrid if {"image", "direction", "mission"} <= spaces.keys() else values


def _position(ahead: int, side: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    parts += [f"{abs(side)} to the {'right' if side > 0 else 'left'}"] if side else []
    return ", ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    # NumPy leaves out most of more than 1000 numbers by default, and wraps rows after 75 characters.
    return numpy.array2string(
        numpy.asarray(value), precision=3, separator=", ", threshold=sys.maxsize, max_line_width=sys.maxsize
    )
