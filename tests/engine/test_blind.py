"""Blind tests: a policy that has learned to see loses its reward when pictures are exchanged or blank."""

import random
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_kinds import engine_recipe
from PIL import Image

from quartet.engine.base import GenerateRequest
from quartet.engine.torch_engine import TorchEngine, open_torch
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.renderer import Renderer
from quartet.policy.save import save_policy
from quartet.types import Message, Picture, Policy, Prompt, Sampling

pytestmark = pytest.mark.slow

COLOURS = {"red": (220, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 220), "grey": (120, 120, 120)}
QUESTION = [Message("user", "Which colour?")]
STEPS, PICTURES_PER_STEP = 60, 16


def square(rgb: Sequence[int], draw: random.Random) -> Picture:
    """A square of some shade."""
    file = BytesIO()
    Image.new("RGB", (32, 32), tuple(channel + draw.randint(-30, 30) for channel in rgb)).save(file, "PNG")
    return Picture(data=file.getvalue())


def squares(count: int, seed: int) -> list[tuple[str, Picture]]:
    """Equally many squares of each colour."""
    draw = random.Random(seed)
    return [(name, square(COLOURS[name], draw)) for name in list(COLOURS) * (count // len(COLOURS))]


def answer_logprobs(policy: LoadedPolicy, renderer: Renderer, shown: Sequence[tuple[str, Picture]]) -> torch.Tensor:
    """Log-probs `[B, T]` of the tokens of answers after pictures, by the model's own forward pass."""
    assert policy.pictures is not None
    model: Any = policy.model
    prompts = [renderer.start_chat(QUESTION, pictures=[picture]) for _, picture in shown]
    answers_BT = torch.tensor([renderer.response(name) for name, _ in shown])
    ids_BL = torch.cat([torch.tensor([prompt.ids for prompt in prompts]), answers_BT], dim=1)
    positions_3L = policy.pictures.positions(ids_BL[0].numpy(), prompts[0].media)
    pictures = [(one, prompt.pictures[one.content_hash]) for prompt in prompts for one in prompt.media]
    logits_BLV = model(
        input_ids=ids_BL,
        position_ids=torch.from_numpy(positions_3L).unsqueeze(1).expand(-1, len(ids_BL), -1),
        **policy.pictures.inputs(pictures),
    ).logits
    logprobs_BTV = logits_BLV[:, -1 - answers_BT.shape[1] : -1].log_softmax(-1)
    return logprobs_BTV.gather(2, answers_BT[..., None])[..., 0]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has been taught colours by examples, on one thread: more would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("blind") / "policy"
    policy = make_vision_policy(["Which colour?", *COLOURS] * 2, folder, hidden_size=32, max_pixels=2**10)
    renderer = Renderer(policy.tokenizer, policy.pictures)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        shown = squares(PICTURES_PER_STEP, seed=step)
        loss = -answer_logprobs(policy, renderer, shown).mean()
        torch.autograd.backward(loss)
        optimizer.step()
    torch.set_num_threads(threads)
    save_policy(policy.model, policy.tokenizer, folder, pictures=policy.pictures)
    return folder


async def reward(engine: TorchEngine, renderer: Renderer, asked: Sequence[tuple[str, Picture]]) -> float:
    """Share of pictures whose colour the policy names."""
    right = 0
    for name, picture in asked:
        prompt: Prompt = renderer.start_chat(QUESTION, pictures=[picture])
        request = GenerateRequest(
            request_id=name,
            prompt_ids=prompt.ids,
            media=prompt.media,
            pictures=prompt.pictures,
            sampling=Sampling(max_tokens=4, temperature=0),
            stop_token_ids=renderer.stop_token_ids,
        )
        right += renderer.decode((await engine.generate(request)).token_ids) == name
    return right / len(asked)


async def test_reward_falls_without_the_right_pictures(taught: Path) -> None:
    policy = load_policy(taught)
    renderer = Renderer(policy.tokenizer, policy.pictures)
    asked = squares(24, seed=1_000)
    names, pictures = zip(*asked, strict=True)
    exchanged = list(zip(names, [*pictures[1:], pictures[0]], strict=True))  # neighbours have other colours
    blank = [(name, square((225, 225, 225), random.Random(0))) for name in names]
    engine = open_torch(engine_recipe("torch"), Policy(version=0, path=str(taught), train_step=0))
    assert await reward(engine, renderer, asked) >= 0.9
    assert await reward(engine, renderer, exchanged) <= 0.1
    assert await reward(engine, renderer, blank) <= 0.5
    await engine.close()
    with torch.no_grad():
        seen, others, none = (
            answer_logprobs(policy, renderer, shown)[:, 0].mean() for shown in (asked, exchanged, blank)
        )
    assert seen > max(others, none) + 1
