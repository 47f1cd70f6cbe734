"""Bound of a scroll, so that it ends within a step's time limit; desktops and guests share it."""

MAX_SCROLL_STEPS = 50
"""Maximum steps of the wheel in each direction; the others are left out."""


def scroll_steps(distance: float) -> int:
    """Return the steps of the wheel for a distance with its sign: at least one for any distance but 0."""
    steps = round(min(max(distance, -MAX_SCROLL_STEPS), MAX_SCROLL_STEPS))
    return steps or (distance > 0) - (distance < 0)
