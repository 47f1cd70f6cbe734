"""Media types of the environments' pictures, determined by their first bytes."""

_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))


def media_type(picture: bytes) -> str | None:
    """Return `image/png`, `image/jpeg` or `image/webp`; None for other data, which must not be served."""
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS if picture.startswith(start)), None)
