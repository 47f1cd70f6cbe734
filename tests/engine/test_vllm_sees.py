"""A real vLLM server that reads pictures: it sees what the trainer sees, at every sync of its weights."""

import os
import random
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from engine_kinds import VLLM_ARGUMENTS, engine_recipe, needs_vllm_with_pictures
from PIL import Image

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.vllm.engine import VllmEngine, open_vllm
from quartet.errors import CheckpointError
from quartet.files.whole_folder import whole_folder
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.save import write_policy
from quartet.types import Policy, Prompt, Sampling

pytestmark = [
    pytest.mark.vllm,
    needs_vllm_with_pictures,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

MAX_GAP_NATS = 1e-3


def screen(width: int, height: int, seed: int = 0) -> bytes:
    file, draw = BytesIO(), random.Random(seed)
    Image.frombytes("RGB", (width, height), draw.randbytes(3 * width * height)).save(file, "PNG")
    return file.getvalue()


def published(policy: LoadedPolicy, folder: Path, canary_of: LoadedPolicy | None = None) -> str:
    """A policy as the trainer leaves it, with the canary of another one if that is given."""
    with whole_folder(folder, point="policy") as fresh:
        write_policy(policy.model, policy.tokenizer, fresh, pictures=policy.pictures)
        scored = (canary_of or policy).model
        write_canary(fresh, scored, [fixed_sequence(scored.config.get_text_config().vocab_size, 64)], policy.pictures)
    return str(folder)


def moved(policy: LoadedPolicy, part: str, by: float) -> LoadedPolicy:
    """Change the parameters whose names contain `part`."""
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if part in name:
                parameter += by * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return policy


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen2_5_vl"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a policy with heads of 32 numbers, since vLLM has no attention for smaller ones on a CPU."""
    folder = tmp_path_factory.mktemp("sees")
    made = make_vision_policy(["Which colour? red blue"] * 2, folder / "made", kind=request.param, hidden_size=64)
    published(moved(made, "", 0.05), folder / "start")
    return folder / "start"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(start: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    recipe = engine_recipe("vllm", arguments=VLLM_ARGUMENTS, max_context_tokens=1024)
    log = tmp_path_factory.mktemp("log") / "vllm.stderr"
    opened = await open_vllm(recipe, Policy(version=0, path=str(start), train_step=0), log)
    yield opened
    await opened.close()


def request_of(policy: LoadedPolicy, *shown: bytes) -> GenerateRequest:
    assert policy.pictures is not None
    prompt = Prompt([40])
    for picture in shown:
        prompt += policy.pictures.prompt(picture) + Prompt([41, 42])
    return GenerateRequest(
        request_id=os.urandom(4).hex(),
        prompt_ids=prompt.ids,
        media=prompt.media,
        pictures=prompt.pictures,
        sampling=Sampling(max_tokens=12, seed=3),
        stop_token_ids=[],
    )


@torch.inference_mode()
def expected_logprobs(policy: LoadedPolicy, request: GenerateRequest, token_ids: Sequence[int]) -> torch.Tensor:
    """Log-probs of a response by the model's own forward pass, without tokens that stand for pictures."""
    assert policy.pictures is not None
    model: Any = policy.model
    ids_L = torch.tensor([*request.prompt_ids, *token_ids])
    positions_3L = torch.from_numpy(policy.pictures.positions(ids_L.numpy(), request.media))
    shown = [(one, request.pictures[one.content_hash]) for one in request.media]
    logits_LV = model(
        input_ids=ids_L[None], position_ids=positions_3L[:, None], **policy.pictures.inputs(shown)
    ).logits[0, len(request.prompt_ids) - 1 : -1]
    logits_LV[:, policy.pictures.never_sampled] = -torch.inf
    return logits_LV.log_softmax(-1).gather(-1, torch.tensor(token_ids)[:, None])[:, 0]


def gap(policy: LoadedPolicy, request: GenerateRequest, result: GenerateResult) -> float:
    return float((expected_logprobs(policy, request, result.token_ids) - torch.tensor(result.logprobs)).abs().max())


async def test_log_probs_behind_pictures_are_those_of_the_model(engine: VllmEngine, start: Path) -> None:
    policy = load_policy(start)
    for shown in ([screen(160, 210)], [screen(40, 24), screen(100, 76, 1)], []):
        request = request_of(policy, *shown)
        result = await engine.generate(request)
        assert gap(policy, request, result) < MAX_GAP_NATS
        assert not {*result.token_ids} & {*policy.pictures.never_sampled}  # type: ignore[union-attr]
    blank = request_of(policy, screen(160, 210, 7))
    result = await engine.generate(blank)
    other = GenerateRequest(**{**_fields(blank), "pictures": {blank.media[0].content_hash: screen(160, 210)}})
    assert gap(policy, other, result) > 10 * MAX_GAP_NATS, "the server shows the policy its own picture"


async def test_every_sync_proves_the_vision_tower(engine: VllmEngine, start: Path, tmp_path: Path) -> None:
    """A canary of text alone would not notice another tower; the server goes back to the last proved policy."""
    old, seen = load_policy(start), request_of(load_policy(start), screen(160, 210))
    new = moved(load_policy(start), "", 0.02)
    load = await engine.load_policy(published(new, tmp_path / "new"), 1)
    assert load.canary_gap is not None and load.canary_gap < MAX_GAP_NATS
    assert gap(new, seen, await engine.generate(seen)) < MAX_GAP_NATS < gap(old, seen, await engine.generate(seen))
    other_tower = moved(load_policy(tmp_path / "new"), "visual.merger", 0.3)
    with pytest.raises(CheckpointError, match="canary"):
        await engine.load_policy(published(new, tmp_path / "blind", canary_of=other_tower), 2)
    assert await engine.version() == 1
    assert gap(new, seen, await engine.generate(seen)) < MAX_GAP_NATS


async def test_the_server_expands_pictures_of_any_size_as_the_renderer_does(engine: VllmEngine, start: Path) -> None:
    """`generate` compares the ids; a difference is a `PlaceholderMismatchError`."""
    policy, draw = load_policy(start), random.Random(0)
    for _ in range(20):
        request = request_of(policy, screen(draw.randint(1, 400), draw.randint(3, 200)))
        assert len((await engine.generate(request)).token_ids) == 12


def _fields(request: GenerateRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}
