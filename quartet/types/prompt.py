"""Prompt of a call: token ids, and pictures by reference."""

from msgspec import Struct
from msgspec.structs import replace

from quartet.types.picture import Media


class Prompt(Struct, frozen=True):
    """Token ids, and the pictures that some of the ids represent.

    >>> (Prompt([1, 2]) + Prompt([3])).ids
    [1, 2, 3]
    """

    ids: list[int]  # [num_prompt_tokens]
    media: list[Media] = []
    """References to pictures, in the order of their placeholders."""
    pictures: dict[str, bytes] = {}
    """Encoded pictures by content hash. Pictures that the conversation has already shown may be missing."""
    train_ids: list[int] = []
    """Token ids that precede the response in training instead of `ids`; empty if they are the same."""

    def __add__(self, more: "Prompt") -> "Prompt":
        """Return this prompt followed by `more`."""
        shifted = [replace(one, offset=one.offset + len(self.ids)) for one in more.media]
        return Prompt([*self.ids, *more.ids], [*self.media, *shifted], self.pictures | more.pictures)
