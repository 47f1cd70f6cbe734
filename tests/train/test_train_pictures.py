"""Training on pictures: the log-probs and gradients of transformers' own forward, and pixels that live for one
microbatch."""

import copy
import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from seeing import BLUE, GREEN, RED, Seeing, encoded, mixed_groups
from tiny_batches import make_batch, make_trajectory, pack

from quartet.config import Lora, Recipe
from quartet.errors import ConfigError, PictureMissingError, PlaceholderMismatchError
from quartet.policy.frozen_tower import freeze_tower
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.lora import add_adapter
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.model import make_model
from quartet.policy.picture_features import PictureFeatures
from quartet.train.forward import score
from quartet.train.packing.attention import attends_everywhere
from quartet.train.packing.branches import Branch, PackedBatch
from quartet.train.packing.microbatch import Microbatch, collate
from quartet.train.packing.rows import in_chunks, share_prompts
from quartet.train.packing.sight import Sight
from quartet.train.step import Learner
from quartet.types import Media

pytestmark = pytest.mark.slow

PATCH = 8


@pytest.fixture(params=["qwen3_vl", "qwen2_5_vl"])
def seeing(request: pytest.FixtureRequest, tmp_path: Path) -> Seeing:
    folder = tmp_path / "policy"
    policy = make_vision_policy(["red green"], folder, kind=request.param, hidden_size=32, patch_size=PATCH)
    assert policy.pictures is not None
    model: Any = policy.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # untrained weights would let no picture through
    return Seeing(model, policy.pictures)


def mixed(seeing: Seeing) -> PackedBatch:
    return pack(make_batch(mixed_groups(seeing)))


def cut(seeing: Seeing, branches: Sequence[Branch], *, packed: bool, max_tokens: int = 400) -> list[Microbatch]:
    rows = share_prompts(branches, [0.5] * len(branches), share=packed, max_tokens_per_microbatch=max_tokens)
    chunks = in_chunks(rows, max_tokens, packed=packed)
    return [collate(chunk, packed=packed, positions=seeing.sight.positions) for chunk in chunks]


def theirs(seeing: Seeing, branch: Branch) -> torch.Tensor:
    """Log-probs of a branch's trained tokens by transformers alone: its positions, its forward pass, one sequence."""
    ids_1L = torch.from_numpy(branch.ids_L)[None]
    images = [(one, seeing.stored[one.content_hash]) for one in branch.media]
    types_1L = (ids_1L == seeing.model.config.image_token_id).int()
    seeing.model.model.rope_deltas = None  # type: ignore[union-attr]
    inputs = seeing.processor.inputs(images)
    logits_LV = seeing.model(input_ids=ids_1L, mm_token_type_ids=types_1L if images else None, **inputs).logits[0]
    logits_LV[:, seeing.processor.never_sampled] = -torch.inf
    trained = branch.trained_L.nonzero()[0]
    return logits_LV[trained - 1].log_softmax(-1)[torch.arange(len(trained)), ids_1L[0, trained]]


def by_branch(seeing: Seeing, batches: Sequence[Microbatch]) -> dict[int, torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for batch in batches:
        logprobs_T = score(seeing.model, batch, seeing.sight).logprobs_T
        parts = logprobs_T.split([branch.num_trained_tokens for branch in batch.branches])
        found |= {id(branch): part for branch, part in zip(batch.branches, parts, strict=True)}
    return found


@pytest.mark.parametrize("packed", [True, False])
def test_log_probs_and_gradients_are_those_of_transformers(seeing: Seeing, packed: bool) -> None:
    branches = mixed(seeing).branches
    assert sorted(len(branch.media) for branch in branches) == [0, 1, 1, 1, 2, 2]
    batches = cut(seeing, branches, packed=packed)
    ours = by_branch(seeing, batches)
    assert len(ours) == len(branches)
    torch.stack([ours[id(branch)].sum() for branch in branches]).sum().backward()
    gradients = {name: parameter.grad for name, parameter in seeing.model.named_parameters()}
    seeing.model.zero_grad(set_to_none=True)
    expected = [theirs(seeing, branch) for branch in branches]
    torch.stack([logprobs_T.sum() for logprobs_T in expected]).sum().backward()
    for branch, logprobs_T in zip(branches, expected, strict=True):
        torch.testing.assert_close(ours[id(branch)], logprobs_T, atol=1e-4, rtol=0)
    for name, parameter in seeing.model.named_parameters():
        assert parameter.grad is not None and gradients[name] is not None, name
        largest = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-4 * max(largest, 1.0), rtol=1e-3)
    assert any(float(gradients[name].abs().max()) > 0 for name in gradients if "visual" in name)  # type: ignore[union-attr]


def test_only_equal_pictures_are_shared(seeing: Seeing) -> None:
    """Placeholders are the same ids for all pictures: what is shared is decided by what they stand for."""
    assert attends_everywhere(seeing.model)
    same = [make_trajectory([seeing.call([40], RED, [41], response=[30 + n])], float(n)) for n in range(2)]
    other = make_trajectory([seeing.call([40], GREEN, [41], response=[33])], 0.0)
    branches = pack(make_batch([[*same, other]])).branches
    (batch,) = cut(seeing, branches, packed=True)
    length = branches[0].num_tokens
    assert len(batch.media) == 2
    assert batch.ids_BL.shape == (1, 2 * length + 1)


def test_a_conversation_goes_on_only_with_the_same_pictures(seeing: Seeing) -> None:
    first = seeing.call([40], RED, [41])
    grown = seeing.longer(first, [43], response=[33])
    same = pack(make_batch([[make_trajectory([first, grown], 1.0), make_trajectory([first], 0.0)]]))
    assert same.num_branches == 2
    shown = replace(grown, media=[replace(grown.media[0], content_hash=seeing.call(GREEN).media[0].content_hash)])
    other = pack(make_batch([[make_trajectory([first, shown], 1.0), make_trajectory([first], 0.0)]]))
    assert other.num_branches == 3


def test_other_pictures_give_other_log_probs(seeing: Seeing) -> None:
    call = seeing.call([40], RED, [41])
    branches = pack(make_batch([[make_trajectory([call], 1.0), make_trajectory([call], 0.0)]])).branches[:1]
    batches = cut(seeing, branches, packed=True)
    with torch.no_grad():
        seen = by_branch(seeing, batches)[id(branches[0])]
        for blind in (GREEN, encoded("white")):
            seeing.stored[call.media[0].content_hash] = blind
            assert (by_branch(seeing, batches)[id(branches[0])] - seen).abs().max() > 1e-3


def test_a_picture_that_is_not_there_is_named(seeing: Seeing) -> None:
    batches = cut(seeing, mixed(seeing).branches, packed=True)
    seeing.stored.clear()
    with pytest.raises(PictureMissingError, match="is missing"):
        score(seeing.model, batches[0], seeing.sight)


def test_a_sampled_placeholder_is_refused(seeing: Seeing) -> None:
    image = seeing.processor.never_sampled[0]
    calls = [seeing.call([40], RED, [41], response=[30, image, 31])]
    branches = pack(make_batch([[make_trajectory(calls, 1.0), make_trajectory(calls, 0.0)]])).branches
    with pytest.raises(PlaceholderMismatchError):
        cut(seeing, branches, packed=True)


class Counting:
    """Picture processor that counts the pixels which live at the same time, and the pictures that it has decoded."""

    def __init__(self, processor: PictureProcessor) -> None:
        self._processor = processor
        self.alive: set[int] = set()
        self.most = self.calls = self.decoded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def inputs(self, shown: Sequence[tuple[Media, bytes]]) -> dict[str, torch.Tensor]:
        inputs = self._processor.inputs(shown)
        for pixels in inputs.values():
            weakref.finalize(pixels, self.alive.discard, id(pixels))
            self.alive.add(id(pixels))
        self.calls, self.decoded = self.calls + 1, self.decoded + len(shown)
        self.most = max(self.most, len(self.alive))
        return inputs


def test_the_pixels_of_at_most_one_microbatch_are_alive(seeing: Seeing, recipe: Callable[..., Recipe]) -> None:
    """In a train step with two epochs: every microbatch is scored before, and goes forward and back twice."""
    packed = mixed(seeing)
    train = {"epochs": 2, "max_tokens_per_microbatch": 24, "learning_rate": 1e-4}
    counting: Any = Counting(seeing.processor)
    sight = Sight(counting, seeing.load)
    learner = Learner(seeing.model, recipe(train=train, engine={"max_context_tokens": 512}), sight=sight)
    before = [parameter.detach().clone() for parameter in seeing.model.parameters()]
    plan = learner.plan(packed.branches, 1, lambda: None)
    gc.collect()
    assert not counting.alive
    learner.update(plan, lambda: None)
    gc.collect()
    with_pictures = sum(bool(batch.media) for minibatch in plan for batch in minibatch)
    assert with_pictures >= 3
    assert counting.calls == 3 * with_pictures
    assert counting.most <= len(("pixel_values", "image_grid_thw"))
    assert not counting.alive
    names = [name for name, _ in seeing.model.named_parameters()]
    changed = [
        name
        for name, old, new in zip(names, before, seeing.model.parameters(), strict=True)
        if not torch.equal(old, new)
    ]
    assert any("visual" in name for name in changed)


def test_a_frozen_tower_runs_once_per_picture(seeing: Seeing, recipe: Callable[..., Recipe]) -> None:
    """In all passes of two train steps, which change the decoder only; log-probs stay those of transformers."""
    freeze_tower(seeing.model)
    packed = mixed(seeing)
    counting: Any = Counting(seeing.processor)
    sight = Sight(counting, seeing.load, max_kept_bytes=2**20)
    train = {"epochs": 2, "max_tokens_per_microbatch": 24, "learning_rate": 1e-3}
    learner = Learner(seeing.model, recipe(train=train, engine={"max_context_tokens": 512}), sight=sight)
    before = {name: parameter.detach().clone() for name, parameter in seeing.model.named_parameters()}
    for step in (1, 2):
        learner.update(learner.plan(packed.branches, step, lambda: None), lambda: None)
    assert counting.decoded == 3, "RED, GREEN and BLUE"
    for name, parameter in seeing.model.named_parameters():
        assert torch.equal(parameter, before[name]) == ("visual" in name), name
    with torch.no_grad():
        for branch in packed.branches:
            (batch,) = cut(seeing, [branch], packed=True)
            ours = score(seeing.model, batch, sight).logprobs_T
            torch.testing.assert_close(ours, theirs(seeing, branch), atol=1e-4, rtol=0)
    assert counting.decoded == 3


def test_kept_features_stay_within_their_memory(seeing: Seeing) -> None:
    freeze_tower(seeing.model)
    media = [seeing.call([40], picture).media[0] for picture in (RED, GREEN, BLUE)]
    one = PictureFeatures(seeing.processor, 2**20)
    sizes = [features.nbytes for features in one.of(seeing.model, media, seeing.load)]
    assert one.num_bytes == sum(sizes)
    counting: Any = Counting(seeing.processor)
    small = PictureFeatures(counting, sizes[0] + sizes[2])
    for picture in (0, 1, 0, 2, 0, 1):  # BLUE needs the place of GREEN, then GREEN that of BLUE
        small.of(seeing.model, [media[picture]], seeing.load)
        assert small.num_bytes <= sizes[0] + sizes[2]
    assert counting.decoded == 4
    small.clear()
    assert small.num_bytes == 0


def test_an_adapter_sees_with_a_tower_that_is_trained_or_frozen(seeing: Seeing, recipe: Callable[..., Recipe]) -> None:
    branches = mixed(seeing).branches
    plain = by_branch(seeing, cut(seeing, branches, packed=True))
    for frozen in (False, True):
        model = copy.deepcopy(seeing.model)
        without = freeze_tower(model) if frozen else None
        add_adapter(model, Lora(rank=2), "base", 0, without=without)
        adapted = Seeing(model, seeing.processor)
        adapted.stored = seeing.stored
        batches = cut(adapted, branches, packed=True)
        with torch.no_grad():
            for branch_id, logprobs_T in by_branch(adapted, batches).items():
                torch.testing.assert_close(logprobs_T, plain[branch_id], atol=1e-5, rtol=0)
        settings = recipe(train={"learning_rate": 1e-2}, lora={"rank": 2}, engine={"max_context_tokens": 512})
        learner = Learner(model, settings, sight=adapted.sight)
        names = set(learner.parameters)
        assert all(".lora_" in name for name in names)
        assert any("visual" in name for name in names) != frozen
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        learner.update(learner.plan(branches, 1, lambda: None), lambda: None)
        changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
        assert changed and changed <= names


def test_a_critic_beside_an_adapter_keeps_the_frozen_tower(seeing: Seeing, recipe: Callable[..., Recipe]) -> None:
    """Its decoder is trained with the kept features of the tower, which stay those of the tower's weights."""
    add_adapter(seeing.model, Lora(rank=2), "base", 0, without=freeze_tower(seeing.model))
    branches = mixed(seeing).branches
    counting: Any = Counting(seeing.processor)
    settings = recipe(
        lora={"rank": 2},
        credit="gae",
        critic="model",
        loss={"terms": ["ppo_clip", "value"]},
        engine={"max_context_tokens": 512},
    )
    learner = Learner(seeing.model, settings, sight=Sight(counting, seeing.load, max_kept_bytes=2**20))
    assert learner.critic is not None
    before = {name: parameter.detach().clone() for name, parameter in learner.critic.module.named_parameters()}
    for step in (1, 2):  # the head is 0 at first, so no gradient goes below it
        learner.update(learner.plan(branches, step, lambda: None), lambda: None)
    assert counting.decoded == 2 * 3, "RED, GREEN and BLUE, by the policy and by the critic"
    changed = {name for name, one in learner.critic.module.named_parameters() if not torch.equal(one, before[name])}
    assert any("layers" in name for name in changed) and not any("visual" in name for name in before.keys() & changed)
    assert not any("visual" in name for name in learner.unpublished)
    learner.reset()
    assert not any(one.any() for name, one in learner.unpublished.items() if "head" in name)


def test_a_text_model_has_no_tower_to_freeze() -> None:
    with pytest.raises(ConfigError, match="no vision tower"):
        freeze_tower(make_model(50, hidden_size=16, num_heads=1, num_layers=1))
