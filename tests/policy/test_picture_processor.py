"""Pictures become placeholders, positions and patches as transformers' own processor and model make them."""

import json
import random
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from quartet.errors import EnvError, GridMismatchError, PictureTooLargeError, PlaceholderMismatchError, SetupError
from quartet.policy.kind.encoded import MAX_PICTURE_PIXELS
from quartet.policy.kind.qwen3_vl import Qwen3VL
from quartet.policy.kind.qwen_vl import PictureTokens, QwenPictures, require_encoder_outputs
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.make_vision import make_processor, make_vision_policy
from quartet.policy.weights import read_weights, swap_weights
from quartet.types import Prompt

TOKENS = PictureTokens(vision_start_token_id=1, image_token_id=2, vision_end_token_id=3, video_token_id=4)


def encoded(width: int, height: int, colour: str = "red") -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


def qwen(patch_size: int, max_pixels: int, min_pixels: int = 4) -> QwenPictures:
    processor = make_processor(patch_size, max_pixels)
    processor.size.shortest_edge = min_pixels
    return QwenPictures(processor, TOKENS)


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen2_5_vl"])
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedPolicy, Path]:
    folder = tmp_path_factory.mktemp("seeing") / "policy"
    return make_vision_policy(["Which colour?", "red green blue"], folder, kind=request.param), folder


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


RELEASED = {
    "Qwen2.5-VL": {"patch_size": 14, "min_pixels": 3_136, "max_pixels": 12_845_056},
    "Qwen3-VL": {"patch_size": 16, "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}},
}
"""What preprocessor_config.json says about sizes in the released models."""


def released(folder: Path, name: str) -> QwenPictures:
    """The processor of a policy's folder with the settings of a released model."""
    settings = RELEASED[name] | {"merge_size": 2, "temporal_patch_size": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(msgspec.json.encode(TOKENS).decode())
    return Qwen3VL().pictures(folder)


def rounded(length: int, factor: int) -> int:
    """To the nearest multiple, half to even, in whole numbers."""
    whole, rest = divmod(length, factor)
    up = 2 * rest > factor or (2 * rest == factor and whole % 2)
    return (whole + bool(up)) * factor


@pytest.mark.parametrize("name", RELEASED)
def test_grids_of_10000_sizes_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    """By the number of patches that transformers states; by the rule, where no bound on pixels holds."""
    ours, draw = released(tmp_path, name), random.Random(0)
    library = Qwen2VLImageProcessorPil.from_pretrained(str(tmp_path))
    factor, size, halves, unbounded = 2 * library.patch_size, library.size, 0, 0
    for _ in range(10_000):
        width = draw.choice(
            (draw.randint(1, 300), draw.randint(200, 4_000), factor * draw.randint(0, 90) + factor // 2)
        )
        height = draw.randint(-(-width // 190), min(4_000, 190 * width))
        found = ours.grid(width, height)
        assert np.prod(found) == library.get_number_of_image_patches(height, width), (width, height)
        rows, columns = rounded(height, factor), rounded(width, factor)
        if size.shortest_edge <= rows * columns <= size.longest_edge:
            assert found == (1, rows // library.patch_size, columns // library.patch_size), (width, height)
            unbounded, halves = unbounded + 1, halves + (width % factor == factor // 2)
    assert unbounded > 3_000 and halves > 1_000


@pytest.mark.parametrize("patch_size", [14, 16])
def test_patches_of_pixels_are_those_that_the_size_foretells(patch_size: int) -> None:
    ours, draw = qwen(patch_size, 40_000, 4 * patch_size**2), random.Random(1)
    sizes = [(draw.randint(1, 300), draw.randint(4, 300)) for _ in range(20)]
    for size in [*sizes, (5 * patch_size, 3 * patch_size), (299, 2)]:
        (shown,) = ours.prompt(encoded(*size)).media
        found = ours.inputs([(shown, encoded(*size))])
        assert tuple(found["image_grid_thw"][0].tolist()) == shown.grid, size
        assert len(found["pixel_values"]) == 4 * shown.num_placeholders == np.prod(shown.grid), size


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
    published = read_weights(folder)
    assert published.keys() == dict(policy.model.named_parameters()).keys()
    torch.nn.init.zeros_(again.model.lm_head.weight)  # type: ignore[union-attr]
    swap_weights(again.model, published)
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


@pytest.mark.parametrize(("name", "patches"), [("Qwen3-VL", 8_160), ("Qwen2.5-VL", 10_764)])
def test_the_pixels_of_a_screen_take_50_megabytes(name: str, patches: int, tmp_path: Path) -> None:
    """The figure that docs/pictures.md computes with."""
    ours, screen = released(tmp_path, name), encoded(1920, 1080)
    (shown,) = ours.prompt(screen).media
    pixels = ours.inputs([(shown, screen)])["pixel_values"]
    assert len(pixels) == patches
    assert 49e6 < pixels.nbytes < 52e6


def test_a_library_that_ignores_separate_outputs_of_the_tower_is_refused() -> None:
    """Its `forward` takes any argument, so the policy would be blind without an error."""

    class Former:
        def forward(self, input_ids: object, **kwargs: object) -> None: ...

    with pytest.raises(SetupError, match="Former of transformers"):
        require_encoder_outputs(Former)
