"""A small model that reads pictures, and groups of rollouts whose prompts show pictures or none."""

from collections.abc import Iterable, Sequence
from io import BytesIO

from msgspec.structs import replace
from PIL import Image
from tiny_batches import make_call, make_trajectory
from transformers import PreTrainedModel

from quartet.ledger.blobs import DamagedBlobError
from quartet.policy.kind.base import PictureProcessor
from quartet.train.packing.sight import Sight
from quartet.types import Call, Prompt, Trajectory


def encoded(colour: str, width: int = 40, height: int = 24) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


RED, GREEN, BLUE = encoded("red"), encoded("green"), encoded("blue", 24, 56)


class Seeing:
    """A small model that reads pictures, and the store of all that its prompts have shown."""

    def __init__(self, model: PreTrainedModel, processor: PictureProcessor) -> None:
        self.model, self.processor = model, processor
        self.stored: dict[str, bytes] = {}

    def load(self, digests: Iterable[str]) -> dict[str, bytes]:
        missing = [digest for digest in digests if digest not in self.stored]
        if missing:
            raise DamagedBlobError(f"blob {missing[0]} is missing")
        return {digest: self.stored[digest] for digest in digests}

    @property
    def sight(self) -> Sight:
        return Sight(self.processor, self.load)

    def prompt(self, *parts: bytes | list[int]) -> Prompt:
        whole = Prompt([])
        for part in parts:
            whole += self.processor.prompt(part) if isinstance(part, bytes) else Prompt(part)
        self.stored |= whole.pictures
        return whole

    def call(self, *parts: bytes | list[int], response: Sequence[int] = (30, 31, 32)) -> Call:
        prompt = self.prompt(*parts)
        return replace(make_call(prompt.ids, response), media=prompt.media)

    def longer(self, call: Call, *parts: bytes | list[int], response: Sequence[int]) -> Call:
        """The next call of a conversation."""
        prompt = call.prompt + Prompt(call.response_ids) + self.prompt(*parts)
        return replace(make_call(prompt.ids, response), media=prompt.media)


def mixed_groups(seeing: Seeing) -> list[list[Trajectory]]:
    """Prompts with one picture, two and none, of three groups; conversations of one turn and of two."""
    first = seeing.call([40, 41], RED, [42])
    grown = seeing.longer(first, [43], BLUE, [44], response=[33, 34])
    return [
        [make_trajectory([first], 1.0), make_trajectory([seeing.call([40, 41], GREEN, [42], response=[35])], 0.0)],
        [make_trajectory([grown], 1.0), make_trajectory([seeing.call([40, 41, 42], response=[36, 37])], 0.0)],
        [make_trajectory([first, grown], 1.0), make_trajectory([first], 0.0)],
    ]
