"""How many tokens does a trajectory train, by the history that its prompts show?

    python -m benchmarks.history --json

Plays one episode per history with the real agent loop, renderer and picture processor, and packs it as the trainer
does. An engine without a model responds, since the count of tokens does not depend on what it says. Each turn shows a
screen of 1920 x 1080 pixels, which Qwen2.5-VL reads as 2,691 tokens. The format's instructions, which begin every
conversation, have 800 tokens. Every turn has 100 tokens of text and 50 of response, and prompts that repeat its action
spend 20 on it. A placeholder of `compressed` has 5.
"""

import asyncio
import json
from io import BytesIO
from typing import Any

import click
from msgspec import Struct, to_builtins
from PIL import Image

from quartet import config
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.policy.kind.qwen_vl import QwenPictures
from quartet.policy.make_vision import make_processor, picture_tokens, vision_tokenizer
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.train.packing.branches import pack_batch
from quartet.train.packing.rows import share_prompts
from quartet.types import (
    Batch,
    FinishReason,
    Group,
    GroupMember,
    Message,
    Observation,
    Picture,
    Sampling,
    StepResult,
    TakenAction,
    Task,
    Trajectory,
)

SCREEN = (1920, 1080)
PATCH, MAX_PIXELS = 14, 12_845_056
PROMPT_TOKENS, OBSERVATION_TOKENS, RESPONSE_TOKENS = 800, 100, 50
ACTION_TOKENS, REQUEST_TOKENS, PLACEHOLDER_TOKENS = 20, 15, 5
MAX_TOKENS_PER_MICROBATCH = 1 << 20
WORD = "word "  # two tokens, the word and the space
GOAL, TEXT = "word", WORD * (OBSERVATION_TOKENS // 2 - 1)  # joined by a line break
ACTION = (WORD * (ACTION_TOKENS // 2)).strip()  # one token less; a prompt shows it after another, `\ndid `
REQUEST = (WORD * ((REQUEST_TOKENS + 1) // 2)).strip()
PLACEHOLDER = (WORD * ((PLACEHOLDER_TOKENS + 1) // 2)).strip()
SLIDING, INTERVAL = "sliding_5", "interval_5_every_10"
HISTORIES: dict[str, dict[str, Any]] = {
    "all": {"name": "all"},
    INTERVAL: {"name": "interval", "min": 5, "every": 10},
    "interval_5_every_5": {"name": "interval", "min": 5, "every": 5},
    SLIDING: {"name": "sliding", "pictures": 5},
    "summary_every_10": {"name": "summary", "every": 10, "max_tokens": RESPONSE_TOKENS, "request": REQUEST},
    "compressed": {"name": "compressed", "placeholder": PLACEHOLDER},
    "latest": {"name": "latest"},
}


class Trained(Struct, kw_only=True):
    """Training sequences of one trajectory."""

    sequences: int
    tokens: int
    """Tokens of all sequences."""
    packed_tokens: int
    """Tokens of all rows, in which a shared first prompt counts once."""
    picture_tokens: int
    """Placeholders of pictures among `tokens`."""
    longest: int
    """Tokens of the longest sequence: the context that the policy needs."""
    read_tokens: int
    """Tokens of all prompts, which an engine reads that keeps nothing between turns."""


class Screens:
    """Environment that shows a new screen in every turn."""

    def __init__(self, turns: int) -> None:
        self._turns, self._turn = turns, 0

    def _observe(self) -> Observation:
        file = BytesIO()
        Image.new("RGB", SCREEN, (self._turn, 0, 0)).save(file, "PNG", compress_level=1)
        return Observation(goal=GOAL, text=TEXT, pictures=[Picture(data=file.getvalue())])

    async def reset(self, task: Task) -> Observation:
        return self._observe()

    async def step(self, action: str) -> StepResult:
        self._turn += 1
        taken = [TakenAction(canonical=ACTION)]
        over = self._turn == self._turns
        return StepResult(observation=self._observe(), reward=0.0, terminated=over, actions=taken)

    async def close(self) -> None: ...


class Talker:
    """Engine that always responds with the same number of tokens."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        count = len(self._ids)
        return GenerateResult(
            token_ids=self._ids,
            logprobs=[-1.0] * count,
            entropies=[1.0] * count,
            versions=[0] * count,
            finish_reason=FinishReason.STOP,
        )

    async def abort(self, request_id: str) -> None: ...

    async def version(self) -> int:
        return 0

    async def close(self) -> None: ...


async def play(history: dict[str, Any], turns: int) -> Trajectory:
    """Return the record of an episode."""
    tokenizer = vision_tokenizer([WORD * 4], 1024)
    pictures = QwenPictures(make_processor(PATCH, MAX_PIXELS), picture_tokens(tokenizer))
    renderer = Renderer(tokenizer, pictures, opening=[Message("system", WORD * (PROMPT_TOKENS // 2))])
    response = [*tokenizer("word", add_special_tokens=False)["input_ids"] * (RESPONSE_TOKENS - 1)]
    talker = Talker([*response, renderer.stop_token_ids[0]])
    model = ModelClient(talker, renderer, sampling=Sampling(), conversation="benchmark")
    loop = build(config.Loop(name="screens"), build(config.History.model_validate(history)))
    limits = Limits(max_turns=turns, max_tokens=RESPONSE_TOKENS, timeout_seconds=600.0)
    task = Task(env="screens", family="benchmark", seed=0)
    (trajectory,) = await loop.run(task, Screens(turns), {"main": model}, limits)
    return trajectory


def trained(trajectory: Trajectory) -> Trained:
    """Return what the trainer makes of a trajectory."""
    member = GroupMember(rollout_id=1, trajectory=trajectory)
    group = Group(group_id=1, task=trajectory.task, members=[member])
    packed = pack_batch(Batch(batch_id=1, attempt=1, train_step=1, start_version=0, groups=[group]), max_lag=0)
    rows = share_prompts(
        packed.branches,
        [1.0] * len(packed.branches),
        share=True,
        max_tokens_per_microbatch=MAX_TOKENS_PER_MICROBATCH,
        gathers=False,
    )
    return Trained(
        sequences=packed.num_branches,
        tokens=packed.sequence_tokens,
        packed_tokens=sum(row.num_tokens for row in rows),
        picture_tokens=sum(one.num_placeholders for branch in packed.branches for one in branch.media),
        longest=max(branch.num_tokens for branch in packed.branches),
        read_tokens=sum(len(call.prompt_ids) for call in trajectory.calls),
    )


def compare(turns: int) -> dict[str, Any]:
    """Return the figures of all histories, and the ratio of tokens of sliding to interval."""
    figures = {name: trained(asyncio.run(play(history, turns))) for name, history in HISTORIES.items()}
    sliding, interval = figures[SLIDING], figures[INTERVAL]
    return {
        "turns": turns,
        "token_ratio_sliding_to_interval": round(sliding.tokens / interval.tokens, 2),
        "packed_token_ratio_sliding_to_interval": round(sliding.packed_tokens / interval.packed_tokens, 2),
        "histories": to_builtins(figures),
    }


@click.command()
@click.option("--turns", default=30, show_default=True, help="Number of turns of the episode.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def main(turns: int, as_json: bool) -> None:
    """Compare the histories of the loop `screens`."""
    result = compare(turns)
    if as_json:
        click.echo(json.dumps(result))
        return
    columns = ("sequences", "tokens", "packed_tokens", "picture_tokens", "longest", "read_tokens")
    click.echo(f"{'history':<22}" + "".join(f"{column:>16}" for column in columns))
    for name, one in result["histories"].items():
        shown = "".join(f"{one[column]:>16,}" for column in columns)
        click.echo(f"{name:<22}{shown}")
    click.echo(f"{SLIDING} to {INTERVAL}: {result['token_ratio_sliding_to_interval']} x the tokens")


if __name__ == "__main__":
    main()
