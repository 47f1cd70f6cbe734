"""Pictures: as an environment shows them, and as a prompt refers to them."""

from msgspec import Struct


class Picture(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An encoded picture (PNG, JPEG or WebP), or a reference to a stored one."""

    content_hash: str = ""
    """SHA-256 in hex of the encoded picture, which is the name of its blob. Empty until it is stored."""
    data: bytes = b""
    """Empty in a record: pictures are read separately, when they are needed."""


class Media(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Place of a picture in a prompt: its content, and the placeholder ids that stand for it."""

    content_hash: str
    """SHA-256 in hex of the encoded picture, which is the name of its blob."""
    offset: int
    """Index in `prompt_ids` of its first placeholder."""
    num_placeholders: int
    grid: tuple[int, int, int]
    """Patches along time, height and width, as the image processor counts them."""
    resized: tuple[int, int]
    """Width and height in pixels after resizing, as the model receives the picture."""
    processor: str
    """Fingerprint of the image processor and its settings."""
