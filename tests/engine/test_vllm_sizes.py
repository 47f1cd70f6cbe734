"""The renderer and vLLM give pictures of all sizes equally many tokens."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_kinds import needs_vllm_with_pictures

from quartet.policy.kind.qwen_vl import PictureTokens, QwenPictures
from quartet.policy.make_vision import make_processor, make_vision_policy

TOKENS = PictureTokens(vision_start_token_id=1, image_token_id=2, vision_end_token_id=3, video_token_id=4)


@pytest.mark.vllm
@needs_vllm_with_pictures
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "patch", "least", "most"), [("qwen2_5_vl", 14, 3_136, 12_845_056), ("qwen3_vl", 16, 65_536, 16_777_216)]
)
def test_tokens_of_10000_sizes_are_those_that_vllm_counts(
    kind: str, patch: int, least: int, most: int, tmp_path: Path
) -> None:
    """With the limits of the released models; a third of the widths are half-way between two numbers of tokens."""
    from vllm.config import ModelConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY

    make_vision_policy(["a colour"] * 2, tmp_path / "policy", kind=kind, hidden_size=64, patch_size=patch)
    config = ModelConfig(model=str(tmp_path / "policy"), dtype="float32")
    info: Any = MULTIMODAL_REGISTRY.get_processing_info(config)
    limits = SimpleNamespace(size={"shortest_edge": least, "longest_edge": most})
    processor = make_processor(patch, most)
    processor.size.shortest_edge = least
    ours, draw = QwenPictures(processor, TOKENS), random.Random(0)
    for _ in range(10_000):
        width = draw.choice((draw.randint(1, 300), draw.randint(200, 4_000), 2 * patch * draw.randint(0, 90) + patch))
        height = draw.randint(-(-width // 190), min(4_000, 190 * width))
        counted = info.get_num_image_tokens(
            image_width=width, image_height=height, image_processor=limits, mm_kwargs={}
        )
        _, rows, columns = ours.grid(width, height)
        assert counted == rows * columns // 4, (width, height)
