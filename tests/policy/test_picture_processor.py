"""Pictures become placeholders, positions and patches as transformers' own processor and model make them."""

import random
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from PIL import Image

from quartet.errors import EnvError, GridMismatchError, PictureTooLargeError, PlaceholderMismatchError
from quartet.policy.kind.encoded import MAX_PICTURE_PIXELS
from quartet.policy.kind.qwen_vl import PictureTokens, QwenPictures
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.types import Prompt
from tests.vision_policy import make_processor, make_vision_policy

TOKENS = PictureTokens(vision_start_token_id=1, image_token_id=2, vision_end_token_id=3, video_token_id=4)


def encoded(width: int, height: int, colour: str = "red") -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


def qwen(patch_size: int, max_pixels: int, min_pixels: int = 4) -> QwenPictures:
    processor = make_processor(patch_size, max_pixels)
    processor.size.shortest_edge = min_pixels
    return QwenPictures(processor, TOKENS)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedPolicy, Path]:
    folder = tmp_path_factory.mktemp("seeing") / "policy"
    return make_vision_policy(["Which colour?", "red green blue"], folder), folder


@pytest.mark.parametrize(
    ("size", "patch_size", "placeholders"),
    [
        ((1920, 1080), 14, 2691),
        ((1920, 1080), 16, 2040),
        ((1280, 720), 14, 1196),
        ((1280, 720), 16, 880),  # 22.5 rows of placeholders: half to even
        ((1024, 768), 16, 768),
        ((160, 210), 14, 48),
        ((160, 210), 16, 35),
    ],
)
def test_placeholders_of_known_screens(size: tuple[int, int], patch_size: int, placeholders: int) -> None:
    prompt = qwen(patch_size, 2**24).prompt(encoded(*size))
    (shown,) = prompt.media
    assert shown.num_placeholders == prompt.ids.count(TOKENS.image_token_id) == placeholders
    assert prompt.ids == [1, *[2] * placeholders, 3]
    assert shown.resized == (shown.grid[2] * patch_size, shown.grid[1] * patch_size)


def assert_same_grids(num_sizes: int, longest: int, seed: int) -> None:
    """What is said of a picture by its size alone is what the library makes of its pixels."""
    draw, ours = random.Random(seed), qwen(2, 6_000, 200)
    for _ in range(num_sizes):
        size = draw.randint(1, longest), draw.randint(1, longest)
        (shown,) = ours.prompt(encoded(*size)).media
        found = ours.inputs([(shown, encoded(*size))])
        assert tuple(found["image_grid_thw"][0].tolist()) == shown.grid, size
        assert len(found["pixel_values"]) == 4 * shown.num_placeholders == np.prod(shown.grid), size


@pytest.mark.slow
def test_grids_of_1000_sizes_are_those_of_the_library() -> None:
    assert_same_grids(1_000, 96, 0)


@pytest.mark.release
def test_grids_of_10000_sizes_are_those_of_the_library() -> None:
    assert_same_grids(10_000, 199, 1)


def test_positions_are_those_of_the_model(seeing: tuple[LoadedPolicy, Path]) -> None:
    """For any number of pictures of any sizes between texts of any length, also none."""
    policy, _ = seeing
    model: Any = policy.model
    assert policy.pictures is not None
    draw = random.Random(0)
    for _ in range(50):
        prompt = Prompt([5] * draw.randint(0, 3))
        for _ in range(draw.randint(1, 3)):
            prompt += policy.pictures.prompt(encoded(draw.randint(8, 90), draw.randint(8, 90)))
            prompt += Prompt([6] * draw.randint(0, 4))
        ids_1L = torch.tensor([prompt.ids])
        theirs, _ = model.model.get_rope_index(
            ids_1L,
            mm_token_type_ids=(ids_1L == model.config.image_token_id).int(),
            image_grid_thw=torch.tensor([one.grid for one in prompt.media]),
        )
        np.testing.assert_array_equal(policy.pictures.positions(np.array(prompt.ids), prompt.media), theirs[:, 0])


def test_a_saved_policy_makes_the_same_of_a_picture(seeing: tuple[LoadedPolicy, Path]) -> None:
    policy, folder = seeing
    again = load_policy(folder)
    assert policy.pictures is not None and again.pictures is not None
    picture = encoded(70, 40, "blue")
    assert again.pictures.prompt(picture) == policy.pictures.prompt(picture)
    assert sum(parameter.numel() for parameter in again.model.parameters()) < 2_000_000
    assert torch.equal(again.model.lm_head.weight, policy.model.lm_head.weight)  # type: ignore[union-attr]


@pytest.mark.slow
def test_pictures_that_cannot_be_shown_are_refused_by_name() -> None:
    ours = qwen(8, 2**16)
    side = int(MAX_PICTURE_PIXELS**0.5)
    with pytest.raises(PictureTooLargeError, match=f"{side + 1} x {side + 1} pixels"):
        ours.prompt(encoded(side + 1, side + 1))
    with pytest.raises(PictureTooLargeError, match="aspect ratio"):
        ours.prompt(encoded(201, 1))
    with pytest.raises(EnvError, match="cannot be read"):
        ours.prompt(b"no picture")
    whole = encoded(40, 40)
    (shown,) = ours.prompt(whole).media
    with pytest.raises(EnvError, match="cannot be decoded"):
        ours.inputs([(shown, whole[:-30])])


def test_another_processor_is_a_grid_mismatch() -> None:
    picture = encoded(64, 64)
    (shown,) = qwen(8, 2**16).prompt(picture).media
    with pytest.raises(GridMismatchError, match="has the patches"):
        qwen(8, 2**10).inputs([(shown, picture)])
    with pytest.raises(GridMismatchError):
        qwen(8, 2**15).inputs([(shown, picture)])  # the same grid, by other settings


def test_placeholders_must_be_those_of_the_pictures() -> None:
    ours = qwen(8, 2**16)
    prompt = Prompt([7]) + ours.prompt(encoded(40, 40))
    ids, (shown,) = np.array(prompt.ids), prompt.media
    wrong = [
        (ids, []),
        (ids, [replace(shown, offset=1)]),
        (ids[ids != TOKENS.image_token_id], [shown]),
        (np.append(ids, TOKENS.image_token_id), [shown]),
        (ids, [replace(shown, num_placeholders=shown.num_placeholders - 1)]),
    ]
    for other_ids, media in wrong:
        with pytest.raises(PlaceholderMismatchError):
            ours.positions(other_ids, media)
    ours.positions(ids, [shown])
