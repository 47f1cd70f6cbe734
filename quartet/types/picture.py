"""Pictures of an environment, and references to them in a prompt."""

from msgspec import Struct


class Picture(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An encoded picture (PNG, JPEG or WebP), or a reference to a stored one."""

    content_hash: str = ""
    """SHA-256 in hex of the encoded picture, which is the name of its blob. Empty until the picture is stored."""
    data: bytes = b""
    """The encoded picture. Empty in a stored record: pictures are read separately, when they are needed."""


class Media(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reference to a picture from a prompt: the picture's content hash, and the position of its placeholder ids."""

    content_hash: str
    """SHA-256 in hex of the encoded picture, which is the name of its blob."""
    offset: int
    """Index of the picture's first placeholder in `prompt_ids`."""
    num_placeholders: int
    grid: tuple[int, int, int]
    """Number of patches along time, height and width, as the image processor counts them."""
    resized: tuple[int, int]
    """Width and height in pixels after resizing, as the model receives the picture."""
    processor: str
    """Fingerprint of the image processor and its settings."""
