"""Prompt of a call, ready to be shown: text, and pictures with the part of the picture that each token stands for."""

import math
from collections.abc import Iterator

from msgspec import Struct

from quartet.types import Call, Media, Trajectory
from quartet.web.tokens import Vocabulary


class PromptPicture(Struct, frozen=True, kw_only=True):
    """Picture in a prompt. Its placeholder tokens stand for `rows` x `columns` parts of it, row by row."""

    number: int
    """Number of the picture in the prompt, from 1."""
    first: int
    """Index of the first placeholder in the prompt, from 1."""
    rows: int
    columns: int
    resized: tuple[int, int]
    """Width and height in pixels, as the model received the picture."""
    seen_at: tuple[int, int] | None
    """Turn, and place among its pictures, of an observation that showed this picture; None if the record has none."""

    @property
    def num_tokens(self) -> int:
        return self.rows * self.columns

    @property
    def part_size(self) -> tuple[int, int]:
        """Width and height, in pixels of the resized picture, of the part that a token stands for."""
        return self.resized[0] // self.columns, self.resized[1] // self.rows


class PromptPart(Struct, frozen=True, kw_only=True):
    """Text with special tokens, or one picture."""

    text: str = ""
    picture: PromptPicture | None = None


def prompt_parts(call: Call, trajectory: Trajectory, vocabulary: Vocabulary) -> Iterator[PromptPart]:
    """Yield the texts and the pictures of a prompt in their order."""
    places = _places(trajectory)
    end = 0
    for number, media in enumerate(call.media, start=1):
        if media.offset > end:
            yield PromptPart(text=vocabulary.text(call.prompt_ids[end : media.offset]))
        yield PromptPart(picture=_picture(number, media, places.get(media.content_hash)))
        end = media.offset + media.num_placeholders
    if end < len(call.prompt_ids):
        yield PromptPart(text=vocabulary.text(call.prompt_ids[end:]))


def _picture(number: int, media: Media, seen_at: tuple[int, int] | None) -> PromptPicture:
    times, height, width = media.grid
    # A placeholder stands for `merged` x `merged` patches of the grid.
    merged = math.isqrt(times * height * width // media.num_placeholders)
    return PromptPicture(
        number=number,
        first=media.offset + 1,
        rows=times * height // merged,
        columns=width // merged,
        resized=media.resized,
        seen_at=seen_at,
    )


def _places(trajectory: Trajectory) -> dict[str, tuple[int, int]]:
    """Return the turn and the place of the first observation with each picture, by content hash; both from 1."""
    found: dict[str, tuple[int, int]] = {}
    for number, turn in enumerate(trajectory.turns, start=1):
        for place, picture in enumerate(turn.observation.pictures, start=1):
            found.setdefault(picture.content_hash, (number, place))
    return found
