"""Prompt of a call: token ids, and pictures by reference."""

from msgspec import Struct
from msgspec.structs import replace

from quartet.types.picture import Media


class Prompt(Struct, frozen=True):
    """Token ids, and the pictures that some of them stand for.

    >>> (Prompt([1, 2]) + Prompt([3])).ids
    [1, 2, 3]
    """

    ids: list[int]  # [num_prompt_tokens]
    media: list[Media] = []
    """In the order of their placeholders."""
    pictures: dict[str, bytes] = {}
    """Encoded pictures by content hash; those that a conversation has shown before may be missing."""

    def __add__(self, more: "Prompt") -> "Prompt":
        """Return both, one behind the other."""
        shifted = [replace(one, offset=one.offset + len(self.ids)) for one in more.media]
        return Prompt([*self.ids, *more.ids], [*self.media, *shifted], self.pictures | more.pictures)
