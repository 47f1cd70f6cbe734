"""Pictures as numbers: what two training sequences must agree in before they share a beginning."""

import hashlib

from quartet.types import Media


def picture_number(picture: Media) -> int:
    """Return a negative number, which no token id is; equal for equal pictures that were cut into equal patches."""
    name = f"{picture.content_hash}/{picture.grid}/{picture.processor}"
    return -1 - int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
