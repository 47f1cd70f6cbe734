"""Engines that read pictures agree with the trainer, and never sample what stands for one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from engine_kinds import engine_recipe
from engine_models import greedy_ids, make_model, make_requests, publish, reference_logprobs
from msgspec.structs import replace
from PIL import Image

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.model_inputs import PictureInputs
from quartet.engine.scheduler import MAX_PREFILL_TOKENS
from quartet.engine.torch_engine import TorchEngine, open_torch
from quartet.engine.transformers_engine import TransformersEngine, open_transformers
from quartet.errors import (
    CheckpointError,
    ConfigError,
    EngineError,
    GridMismatchError,
    PictureMissingError,
    PlaceholderMismatchError,
    RefusedRequestError,
)
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.qwen3_vl import Qwen3VL
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.save import save_policy
from quartet.train.forward import score
from quartet.train.packing.branches import pack_batch
from quartet.train.packing.microbatch import collate
from quartet.train.packing.rows import share_prompts
from quartet.train.packing.sight import Sight
from quartet.types import (
    Batch,
    Call,
    FinishReason,
    Group,
    GroupMember,
    Media,
    Policy,
    Prompt,
    Sampling,
    Status,
    Task,
    Trajectory,
)

pytestmark = pytest.mark.slow

MAX_GAP_NATS = 1e-4


def square(colour: str, width: int = 40, height: int = 24) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


RED, BLUE = square("red"), square("blue", 60, 60)


OPEN = {"torch": open_torch, "transformers": open_transformers}
Opened = TorchEngine | TransformersEngine


@pytest.fixture(params=["torch qwen3_vl", "torch qwen2_5_vl", "transformers qwen3_vl"])
def engine_and_kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    name, kind = request.param.split()
    return name, kind


@pytest.fixture
def folder(tmp_path: Path, engine_and_kind: tuple[str, str]) -> Path:
    """A policy that sees, in which what stands for a picture is the likeliest token, as far as the weights say."""
    made = make_vision_policy(["red blue"], tmp_path / "made", kind=engine_and_kind[1], hidden_size=32)
    model: Any = made.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        model.get_input_embeddings().weight[model.config.image_token_id] *= 20
    save_policy(model, made.tokenizer, tmp_path / "policy", pictures=made.pictures)
    return tmp_path / "policy"


@pytest.fixture
async def engine(folder: Path, engine_and_kind: tuple[str, str]) -> AsyncIterator[Opened]:
    name, _ = engine_and_kind
    opened = OPEN[name](engine_recipe(name), Policy(version=4, path=str(folder), train_step=4))
    yield opened
    await opened.close()


def prompt_of(policy: LoadedPolicy, *parts: bytes | list[int]) -> Prompt:
    assert policy.pictures is not None
    whole = Prompt([])
    for part in parts:
        whole += policy.pictures.prompt(part) if isinstance(part, bytes) else Prompt(part)
    return whole


def request_of(prompt: Prompt, name: str = "one", **sampling: Any) -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        prompt_ids=prompt.ids,
        media=prompt.media,
        pictures=prompt.pictures,
        sampling=Sampling(**{"max_tokens": 12, "seed": 3} | sampling),
        stop_token_ids=[1],
    )


@torch.no_grad()
def trained(policy: LoadedPolicy, request: GenerateRequest, result: GenerateResult) -> tuple[torch.Tensor, ...]:
    """Log-probs and entropies of a response as the trainer computes them."""
    assert policy.pictures is not None
    call = Call(
        prompt_ids=request.prompt_ids,
        media=request.media,
        response=result.tokens,
        sampling=request.sampling,
        finish_reason=result.finish_reason,
    )
    task = Task(env="squares", family="colour", seed=0)
    one = Trajectory(task=task, status=Status.COMPLETED, calls=[call], turns=[], rewards={"task": 1.0}, success=True)
    members = [GroupMember(rollout_id=1, trajectory=one)]
    groups = [Group(group_id=1, task=task, members=members)]
    batch = Batch(batch_id=1, attempt=1, train_step=1, start_version=4, groups=groups)
    sight = Sight(policy.pictures, lambda digests: {digest: request.pictures[digest] for digest in digests})
    rows = share_prompts(pack_batch(batch, 0).branches, [1.0], share=True, max_tokens_per_microbatch=500)
    logprobs_T, entropies_T, *_ = score(policy.model, collate(rows, packed=True, positions=sight.positions), sight)
    return logprobs_T, entropies_T


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_log_probs_and_entropies_are_those_of_the_trainer(
    engine: Opened, folder: Path, temperature: float
) -> None:
    policy = load_policy(folder)
    prompts = [
        prompt_of(policy, [40, 41], RED, [42]),
        prompt_of(policy, [40], RED, [41, 42], BLUE, [43]),
        prompt_of(policy, [40, 41, 42]),
    ]
    requests = [
        request_of(prompt, str(number), seed=number, temperature=temperature) for number, prompt in enumerate(prompts)
    ]
    results = await asyncio.gather(*(engine.generate(request) for request in requests))
    for request, result in zip(requests, results, strict=True):
        logprobs_T, entropies_T = trained(policy, request, result)
        torch.testing.assert_close(torch.tensor(result.logprobs), logprobs_T, atol=MAX_GAP_NATS, rtol=0)
        torch.testing.assert_close(torch.tensor(result.entropies), entropies_T, atol=MAX_GAP_NATS, rtol=0)
        assert set(result.versions) == {4}


async def test_picture_placeholders_are_never_sampled(engine: Opened, folder: Path) -> None:
    policy = load_policy(folder)
    prompt = prompt_of(policy, [40], RED, [41])
    image = policy.model.config.image_token_id
    with torch.no_grad():
        likeliest = policy.model(input_ids=torch.arange(40, 80)[None]).logits[0].argmax(-1).tolist()
    assert image in likeliest
    for seed in range(4):
        result = await engine.generate(request_of(prompt, seed=seed, max_tokens=30))
        assert not set(result.token_ids) & {image, policy.model.config.video_token_id}
        logprobs_T, _ = trained(policy, request_of(prompt), result)
        torch.testing.assert_close(torch.tensor(result.logprobs), logprobs_T, atol=MAX_GAP_NATS, rtol=0)


async def test_a_text_model_is_served_too(tmp_path: Path) -> None:
    model = make_model("qwen3_tied")
    policy = Policy(version=2, path=str(publish(model, tmp_path / "text")), train_step=2)
    engine = open_transformers(engine_recipe("transformers"), policy)
    for request in make_requests(4):
        result = await engine.generate(request)
        expected = reference_logprobs(model, request, result.token_ids)[range(len(result)), result.token_ids]
        torch.testing.assert_close(torch.tensor(result.logprobs), expected, atol=MAX_GAP_NATS, rtol=0)
        greedy = replace(request, sampling=replace(request.sampling, temperature=0))
        assert (await engine.generate(greedy)).token_ids == greedy_ids(model, greedy)
    await engine.close()


async def test_blank_or_exchanged_pictures_change_the_log_probs(engine: Opened, folder: Path) -> None:
    policy = load_policy(folder)
    seen = await engine.generate(request_of(prompt_of(policy, [40], RED, [41]), max_tokens=1, temperature=0))
    for other in (square("white"), square("blue")):
        request = request_of(prompt_of(policy, [40], other, [41]), max_tokens=1, temperature=0)
        blind = await engine.generate(request)
        assert abs(blind.entropies[0] - seen.entropies[0]) > 1e-3


async def test_requests_whose_pictures_do_not_fit_are_refused_by_name(engine: Opened, folder: Path) -> None:
    policy = load_policy(folder)
    good = request_of(prompt_of(policy, [40], RED, [41]))
    (shown,) = good.media
    wrong: list[tuple[type[Exception], GenerateRequest]] = [
        (PictureMissingError, replace(good, pictures={})),
        (PlaceholderMismatchError, replace(good, media=[])),
        (PlaceholderMismatchError, replace(good, prompt_ids=[*good.prompt_ids, good.prompt_ids[2]])),
        (GridMismatchError, replace(good, media=[replace(shown, processor="another")])),
        (GridMismatchError, replace(good, pictures={shown.content_hash: BLUE})),
    ]
    for error, request in wrong:
        with pytest.raises(error):
            await engine.generate(request)
    assert (await engine.generate(good)).token_ids


async def test_a_picture_that_cannot_be_decoded_is_refused(engine: Opened, folder: Path) -> None:
    cut = square("red", 400, 300)[:-60]  # its header is whole
    with pytest.raises(RefusedRequestError, match="cannot be decoded"):
        await engine.generate(request_of(prompt_of(load_policy(folder), [40], cut, [41])))


async def test_a_request_that_was_cancelled_while_it_waited_can_be_sent_again(engine: Opened, folder: Path) -> None:
    prompt = prompt_of(load_policy(folder), [40], RED, [41])
    first = asyncio.create_task(engine.generate(request_of(prompt, "first", max_tokens=900)))
    while not engine.so_far("first"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    waits = asyncio.create_task(engine.generate(request_of(prompt, "waits")))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    again = asyncio.create_task(engine.generate(request_of(prompt, "waits")))
    await asyncio.sleep(0)
    await engine.abort("first")
    assert (await first).finish_reason is FinishReason.ABORT
    assert (await again).finish_reason is not FinishReason.ABORT


async def test_an_engine_without_a_vision_tower_refuses_pictures() -> None:
    shown = Media(content_hash="a", offset=0, num_placeholders=1, grid=(1, 2, 2), resized=(16, 16), processor="p")
    text = TorchEngine(make_model("qwen3_tied"), 0, engine_recipe("torch").engine)
    with pytest.raises(RefusedRequestError, match="reads text only"):
        await text.generate(request_of(Prompt([0], [shown], {"a": RED})))
    await text.close()


async def test_tokens_have_the_log_probs_of_their_version(engine: Opened, folder: Path, tmp_path: Path) -> None:
    old, new = load_policy(folder), load_policy(folder)
    with torch.no_grad():
        for parameter in new.model.parameters():
            parameter += 0.02
    next_folder = tmp_path / "next"
    save_policy(new.model, new.tokenizer, next_folder, pictures=new.pictures)
    write_canary(next_folder, new.model, [fixed_sequence(engine.vocab_size, 32)], new.pictures)
    request = request_of(prompt_of(old, [40], RED, [41]), max_tokens=60)
    running = asyncio.create_task(engine.generate(request))
    while not engine.so_far("one"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    load = await engine.load_policy(next_folder, 5)
    during = await running
    assert load.canary_gap is not None and load.canary_gap < MAX_GAP_NATS
    after = await engine.generate(request)
    assert (set(after.versions), await engine.version()) == ({5}, 5)
    assert during.versions == sorted(during.versions) and during.versions[0] == 4
    for result in (during, after):
        by_version = {4: trained(old, request, result)[0], 5: trained(new, request, result)[0]}
        expected = [by_version[version][index] for index, version in enumerate(result.versions)]
        torch.testing.assert_close(torch.tensor(result.logprobs), torch.stack(expected), atol=MAX_GAP_NATS, rtol=0)
    write_canary(next_folder, old.model, [fixed_sequence(engine.vocab_size, 32)], old.pictures)
    with pytest.raises(CheckpointError, match="canary"):
        await engine.load_policy(next_folder, 6)
    assert await engine.version() == 5


async def test_the_canary_proves_the_vision_tower(engine: Opened, folder: Path, tmp_path: Path) -> None:
    """Its sequences of text alone would not notice."""
    policy, next_folder = load_policy(folder), tmp_path / "next"
    save_policy(policy.model, policy.tokenizer, next_folder, pictures=policy.pictures)
    model: Any = load_policy(folder).model
    with torch.no_grad():
        for parameter in model.model.visual.merger.parameters():
            parameter += 0.05
    write_canary(next_folder, model, [fixed_sequence(engine.vocab_size, 32)], policy.pictures)
    with pytest.raises(CheckpointError, match="canary"):
        await engine.load_policy(next_folder, 5)
    write_canary(next_folder, policy.model, [fixed_sequence(engine.vocab_size, 32)], policy.pictures)
    assert (await engine.load_policy(next_folder, 5)).canary_gap == pytest.approx(0, abs=1e-4)


async def test_requests_can_be_ended_and_go_on(engine: Opened, folder: Path) -> None:
    prompt = prompt_of(load_policy(folder), [40], RED, [41])
    whole = await engine.generate(request_of(prompt, max_tokens=40))
    running = asyncio.create_task(engine.generate(request_of(prompt, max_tokens=900)))
    while not engine.so_far("one"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await engine.abort("one")
    cut = await running
    assert cut.finish_reason is FinishReason.ABORT
    assert cut.token_ids[:40] == whole.token_ids[: len(cut.token_ids)]
    assert (await engine.generate(request_of(prompt, max_tokens=40))).token_ids == whole.token_ids
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await engine.version()


class Watched:
    """Engine `torch`, which counts the pictures that its vision tower sees; each is decoded just before."""

    def __init__(self, folder: Path, **engine: Any) -> None:
        self.policy, self.seen = load_policy(folder), 0
        processor = self.processor = self.policy.pictures
        assert processor is not None
        model = load_policy(folder).model  # the engine's own: the trainer changes its model during a pass
        inputs = PictureInputs(model, cast(PictureProcessor, self), 2**20)
        self.positions, self.never_sampled = processor.positions, processor.never_sampled
        recipe = engine_recipe("torch", **engine)
        self.engine = TorchEngine(model, 4, recipe.engine, self.policy.tokenizer, inputs=inputs)

    def inputs(self, shown: Sequence[tuple[Media, bytes]]) -> dict[str, torch.Tensor]:
        assert self.processor is not None
        self.seen += len(shown)
        return self.processor.inputs(shown)

    async def check(self, request: GenerateRequest) -> None:
        """Compare the log-probs of a response with the trainer's."""
        result = await self.engine.generate(request)
        logprobs_T, _ = trained(self.policy, request, result)
        torch.testing.assert_close(torch.tensor(result.logprobs), logprobs_T, atol=MAX_GAP_NATS, rtol=0)


@pytest.fixture
def torch_folder(tmp_path: Path) -> Path:
    made = make_vision_policy(["red blue"], tmp_path / "made", hidden_size=32)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.mul_(3.0)
    save_policy(made.model, made.tokenizer, tmp_path / "policy", pictures=made.pictures)
    return tmp_path / "policy"


async def test_the_tower_runs_once_per_picture_and_version(torch_folder: Path) -> None:
    watched = Watched(torch_folder, prefix_cache_megabytes=0)
    first = prompt_of(watched.policy, [40], RED, [41])
    both = first + Prompt([42]) + prompt_of(watched.policy, BLUE, RED, [43])
    for name in ("a", "b"):
        await watched.check(request_of(first, name))
        await watched.check(request_of(both, name))
    assert watched.seen == 2, "RED and BLUE, in eight places of four prompts"
    await watched.engine.load_policy(torch_folder, 5)
    await watched.check(request_of(both))
    assert watched.seen == 4, "new weights see them anew"
    await watched.engine.close()


async def test_a_cached_prefix_has_the_same_pictures(torch_folder: Path) -> None:
    """Placeholder ids are the same for all pictures; RED and GREEN even have the same grid."""
    watched, green = Watched(torch_folder), square("green")
    words = list(range(40, 60))
    for picture, reused in ((RED, 0), (green, len(words) + 1), (RED, None)):
        before = watched.engine.counters.reused_tokens
        prompt = prompt_of(watched.policy, words, picture, [41, 42])
        await watched.check(request_of(prompt))
        expected = len(prompt.ids) - 1 if reused is None else reused
        assert watched.engine.counters.reused_tokens - before == expected
    assert watched.seen == 2
    await watched.engine.close()


async def test_a_long_prompt_is_computed_in_chunks_that_cut_pictures(torch_folder: Path) -> None:
    watched = Watched(torch_folder, max_context_tokens=1000)
    prompt = Prompt([])
    for colour in ("red", "green", "blue"):
        prompt += prompt_of(watched.policy, square(colour, 256, 240), [41])
    assert len(prompt.ids) > MAX_PREFILL_TOKENS + 100
    shorter = request_of(prompt_of(watched.policy, [40], RED, [41]), "shorter")
    await asyncio.gather(watched.check(request_of(prompt)), watched.check(shorter))
    await watched.engine.close()


async def test_one_picture_that_cannot_be_read_ends_one_request_only(torch_folder: Path) -> None:
    watched = Watched(torch_folder)
    cut = square("red", 400, 300)[:-60]
    good = [
        request_of(prompt_of(watched.policy, [40], picture, [41]), str(index))
        for index, picture in enumerate((RED, BLUE))
    ]
    bad = request_of(prompt_of(watched.policy, [40], cut, [41]), "bad")
    results = await asyncio.gather(
        *(watched.engine.generate(one) for one in (good[0], bad, good[1])), return_exceptions=True
    )
    assert [isinstance(one, RefusedRequestError) for one in results] == [False, True, False]
    await asyncio.gather(*map(watched.check, good))
    await watched.engine.close()


def test_an_engine_that_would_be_blind_does_not_start(torch_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a version of transformers that ignores the features."""
    monkeypatch.setattr(Qwen3VL, "arguments", lambda self, features: {})
    with pytest.raises(ConfigError, match="nats apart"):
        open_torch(engine_recipe("torch"), Policy(version=0, path=str(torch_folder), train_step=0))
