"""Pictures in requests to vLLM: raw pictures beside token ids, with one placeholder each, which the server expands.

The server repeats the expanded prompt in its first event. Its ids must equal those that the trainer will use.
"""

import base64
from collections.abc import Mapping, Sequence

from quartet.errors import PlaceholderMismatchError
from quartet.policy.kind.encoded import opened
from quartet.types import Media

LOWEST_BIAS = -100.0
"""Lowest bias of a logit that vLLM accepts. The token's probability is then at most e^-100 of the likeliest one's."""


def collapsed(token_ids: Sequence[int], media: Sequence[Media]) -> list[int]:
    """Return the ids with one placeholder for each picture."""
    ids: list[int] = []
    end = 0
    for one in media:
        ids += token_ids[end : one.offset + 1]
        end = one.offset + one.num_placeholders
    return [*ids, *token_ids[end:]]


def content_parts(media: Sequence[Media], pictures: Mapping[str, bytes], cache_salt: str) -> list[dict[str, str]]:
    """Return the pictures, given by content hash, in the order of their placeholders.

    The salt changes with the weights, so that the server uses no outputs of a former vision tower.
    """
    return [_part(pictures[one.content_hash], f"{cache_salt}-{one.content_hash}") for one in media]


def _part(picture: bytes, name: str) -> dict[str, str]:
    kind = str(opened(picture).format).lower()
    url = f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"
    return {"type": "image_url", "url": url, "uuid": name}


def check_expanded(prompt_ids: Sequence[int], expanded_ids: Sequence[int]) -> None:
    """Raise `PlaceholderMismatchError` unless the server expanded the placeholders as the renderer did."""
    if list(prompt_ids) != list(expanded_ids):
        pairs = enumerate(zip(prompt_ids, expanded_ids, strict=False))
        place = next((index for index, (ours, theirs) in pairs if ours != theirs), len(expanded_ids))
        raise PlaceholderMismatchError(
            f"vLLM expanded the placeholders of a prompt to {len(expanded_ids)} tokens, but the renderer to "
            f"{len(prompt_ids)}; the first difference is at token {place}",
            "start vLLM without --mm-processor-kwargs, and with the image processor's settings in the policy's folder",
        )
