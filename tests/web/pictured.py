"""A run whose policy reads pictures: a group of two rollouts, with every kind of mark on their screens."""

import hashlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw

from quartet.actions.taken import taken
from quartet.ledger import Ledger
from quartet.types import (
    Call,
    FinishReason,
    Keyboard,
    Media,
    Observation,
    Picture,
    Pointer,
    Prompt,
    RolloutLease,
    Sampling,
    Status,
    TakenAction,
    TokenColumns,
    Trajectory,
    Turn,
)
from quartet.types.frame import Point, Unit
from tests.web.recorded import Recorder

WIDTH, HEIGHT, PART = 320, 240, 32
"""Size of a screen, and of the part of it that a placeholder token stands for."""
ROWS, COLUMNS = -(-HEIGHT // PART), WIDTH // PART
IMAGE, BEFORE, AFTER, WORD = 90, 91, 92, 7


def screen(title: str) -> bytes:
    """A window on a desktop."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "#336699")
    draw = ImageDraw.Draw(image)
    draw.rectangle((40, 30, 280, 210), fill="#f4f4f4", outline="#222222")
    draw.rectangle((40, 30, 280, 50), fill="#222222")
    draw.text((50, 33), title, fill="white")
    draw.rectangle((150, 110, 210, 140), fill="#cccccc", outline="#222222")
    draw.text((165, 118), "next", fill="black")
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def prompt(words: int, picture: Picture) -> Prompt:
    """Some words, then a picture."""
    media = Media(
        content_hash=picture.content_hash,
        offset=words + 1,
        num_placeholders=ROWS * COLUMNS,
        grid=(1, 2 * ROWS, 2 * COLUMNS),
        resized=(WIDTH, ROWS * PART),
        processor="p",
    )
    return Prompt([*[WORD] * words, BEFORE, *[IMAGE] * media.num_placeholders, AFTER], [media])


def call(shown: Prompt) -> Call:
    response = TokenColumns(token_ids=[1, 2, 3], logprobs=[-0.1, -1.0, -3.0], versions=[0, 0, 0])
    return Call(
        prompt_ids=shown.ids,
        media=shown.media,
        response=response,
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )


def pointed(*points: tuple[float, float], **fields) -> TakenAction:
    return taken(Pointer(places=[Point(x, y) for x, y in points], **fields), points=points)


TURNS: Sequence[Sequence[TakenAction]] = (
    [pointed((180, 125), gesture="double_click")],
    [pointed((60, 40), (200, 180), gesture="drag"), pointed((100, 100), gesture="scroll", scrolled=(0, 3))],
    [taken(Pointer(gesture="click", places=[Point(500, 250, Unit(1000))]), "outside of the window")],
    [taken(Keyboard(keys=["Enter"]))],
)
"""Actions of each turn."""


def trajectory(lease: RolloutLease, reward: float) -> Trajectory:
    """Four turns; each prompt continues the one before, so the last one shows four pictures."""
    shown, calls, turns = Prompt([]), list[Call](), list[Turn]()
    for number, actions in enumerate(TURNS, start=1):
        picture = hashed(screen(f"rollout {lease.index + 1}, turn {number}"))
        shown += prompt(5, picture)
        calls.append(call(shown))
        shown += Prompt([1, 2, 3])
        seen = Observation(goal="Press next.", text="button next [1]", pictures=[picture])
        turns.append(Turn(observation=seen, call_index=number - 1, response="act", actions=list(actions)))
    return Trajectory(
        task=lease.task,
        status=Status.COMPLETED,
        calls=calls,
        turns=turns,
        final_observation=Observation(goal="", text="gone", pictures=[hashed(screen("the end"))]),
        rewards={"task": reward},
        success=reward == 1,
    )


def hashed(data: bytes) -> Picture:
    return Picture(data=data, content_hash=hashlib.sha256(data).hexdigest())


def record_pictures(run_dir: Path) -> Ledger:
    run = Recorder(run_dir)
    leases = run.open_group("desk", 2)
    for lease in leases:
        run.ledger.trajectories.append(lease, trajectory(lease, float(lease.index)), 3)
    run.ledger.groups.close(leases[0].group_id)
    return run.ledger
