"""Scripted experts for the families of `miniwob-pixels`. They read the page's document, which the policy cannot see."""

import json
from pathlib import Path

from quartet.actions.format.location_tokens import middle_of_part
from quartet.env.miniwob.env import HEIGHT, WIDTH, MiniWobSession
from quartet.errors import EnvError
from quartet.types import Pointer

EXPERTS = Path(__file__).with_name("experts.js").read_text()


async def expert_action(session: MiniWobSession, family: str, goal: str, turn: int, parts: int) -> Pointer:
    """Return the expert's action in a turn (from 0), whose points the format `location_tokens` can write.

    Raise `EnvError` if the page lacks what the expert looks for.
    """
    points = await session.page.ask(f"{EXPERTS}({json.dumps(family)}, {json.dumps(goal)}, {turn})")
    if not points:
        raise EnvError(f"the expert of {family!r} found nothing to act on for the goal {goal!r}")
    places = [middle_of_part(x, y, WIDTH, HEIGHT, parts) for x, y in points]
    return Pointer(gesture="click" if len(places) == 1 else "drag", places=list(places))
