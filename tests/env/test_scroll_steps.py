"""Wheel steps of a scroll on desktops and OSWorld's guests: bounded, and at least one for any distance but 0."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet import config
from quartet.env.desktop.bounds import MAX_SCROLL_STEPS, scroll_steps
from quartet.registry import build
from quartet.types import Pointer
from quartet.types.frame import Screen


@given(st.floats(-1e6, 1e6))
def test_every_distance_but_0_moves_the_wheel_in_its_direction(distance: float) -> None:
    steps = scroll_steps(distance)
    assert abs(steps) <= MAX_SCROLL_STEPS
    assert (steps > 0) == (distance > 0) and (steps < 0) == (distance < 0)


SCROLLED = json.dumps({"name": "computer_use", "arguments": {"action": "scroll", "pixels": -5}})


@pytest.mark.parametrize(
    ("name", "text", "steps"),
    [
        ("qwen3_vl", f"<tool_call>{SCROLLED}</tool_call>", (0, 1)),
        ("browsergym", "scroll(0, 50)", (0, 1)),
        ("browsergym", "scroll(-20, 150)", (-1, 2)),
    ],
)
def test_a_small_scroll_of_a_format_is_a_step(name: str, text: str, steps: tuple[int, int]) -> None:
    (action,) = build(config.ActionFormat(name=name)).parse(text, Screen())
    assert isinstance(action, Pointer)
    assert tuple(map(scroll_steps, action.scrolled)) == steps
