"""A task of memory: every turn shows a coloured square and asks for the colour that was shown four turns before.

The policy is a small Qwen3-VL. It plays with the real agent loop and engine, and learns by the real train step.
"""

import asyncio
import hashlib
import random
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

from PIL import Image

from quartet.config import Recipe
from quartet.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.engine.torch_engine import open_torch
from quartet.policy.load import load_policy
from quartet.policy.renderer import Renderer
from quartet.policy.save import save_policy
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits, loop_of
from quartet.train.assign import credits_of
from quartet.train.packing.sight import Sight
from quartet.train.step import Learner
from quartet.train.train_batch import train_batch
from quartet.types import (
    Batch,
    FinishReason,
    Group,
    GroupMember,
    Observation,
    Picture,
    Policy,
    Sampling,
    StepResult,
    Task,
    Trajectory,
)

BACK = 4
"""Number of turns between a square and its answer: the most that five pictures can show."""
SIDE = 16
"""Width and height of a square in pixels: one placeholder token."""
RGB = {"red": (220, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 220), "grey": (120, 120, 120)}
QUESTION = "Which colour?"


def _square(colour: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (SIDE, SIDE), RGB[colour]).save(file, "PNG")
    return file.getvalue()


SQUARES = {colour: _square(colour) for colour in RGB}
BY_HASH = {hashlib.sha256(square).hexdigest(): square for square in SQUARES.values()}


class Colours:
    """One episode of `turns` squares. The answers to all but the first squares count; rewards sum to the share of right
    ones."""

    def __init__(self, turns: int) -> None:
        self._turns, self._shown = turns, [""]

    @property
    def answer(self) -> str:
        """The right answer of this turn; in the first turns, the colour of the first square."""
        return self._shown[max(0, len(self._shown) - 1 - BACK)]

    async def reset(self, task: Task) -> Observation:
        self._draw = random.Random(f"colours {task.seed}")
        self._shown = []
        return self._observe()

    async def step(self, action: str) -> StepResult:
        right = len(self._shown) > BACK and action.strip() == self.answer
        over, reward = len(self._shown) == self._turns, right / (self._turns - BACK)
        return StepResult(observation=self._observe(), reward=reward, terminated=over)

    async def close(self) -> None: ...

    def _observe(self) -> Observation:
        self._shown.append(self._draw.choice([*RGB]))
        return Observation(goal="", text=QUESTION, pictures=[Picture(data=SQUARES[self._shown[-1]])])


class Teacher(Engine):
    """Engine that gives the right answer of one session, as if the policy `version` had sampled it."""

    def __init__(self, session: Colours, renderer: Renderer, version: int) -> None:
        self._session, self._renderer, self._version = session, renderer, version

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        ids = self._renderer.response(self._session.answer)
        count = len(ids)
        return GenerateResult(
            token_ids=ids,
            logprobs=[-1.0] * count,
            entropies=[1.0] * count,
            versions=[self._version] * count,  # tokens of an older one would not be trained
            finish_reason=FinishReason.STOP,
        )

    async def abort(self, request_id: str) -> None: ...

    async def version(self) -> int:
        return self._version

    async def close(self) -> None: ...


class Memory:
    """A policy that plays episodes of `turns` turns, and is trained on them."""

    def __init__(self, start: Path, recipe: Recipe, turns: int, folder: Path) -> None:
        loaded = load_policy(start)
        assert loaded.pictures is not None
        self._recipe, self._turns, self._folder = recipe, turns, folder
        self._loaded, self._renderer = loaded, Renderer(loaded.tokenizer, loaded.pictures)
        sight = Sight(loaded.pictures, _load)
        self._learner, self._credits = Learner(loaded.model, recipe, sight=sight), credits_of(recipe)
        self._engine = open_torch(recipe, Policy(version=0, path=str(start), train_step=0))
        self.loop = loop_of(recipe)
        """Agent loop of the following rollouts."""
        self.version = 0
        """Number of train steps so far."""
        self.trained_tokens = 0

    async def play(self, seeds: Iterable[int], rollouts_per_task: int, *, taught: bool = False) -> list[Group]:
        """Return a group of rollouts for each seed. If `taught`, the answers are the right ones."""
        tasks = [Task(env="colours", family="colours", seed=seed) for seed in seeds]
        played = await asyncio.gather(
            *(self._play(task, number, taught) for task in tasks for number in range(rollouts_per_task))
        )
        members = [GroupMember(rollout_id=number, trajectory=one) for number, one in enumerate(played)]
        return [
            Group(group_id=number, task=task, members=members[number * rollouts_per_task :][:rollouts_per_task])
            for number, task in enumerate(tasks)
        ]

    async def train(self, groups: Sequence[Group]) -> None:
        """Train on the groups, and load the new weights into the engine."""
        step = self.version + 1
        batch = Batch(batch_id=step, attempt=1, train_step=step, start_version=self.version, groups=list(groups))
        packed, _ = train_batch(
            batch,
            self._learner,
            self._recipe,
            self._credits,
            progress=lambda: None,
            phases=lambda _: nullcontext(),
        )
        self.trained_tokens += packed.sequence_tokens
        self.version = step
        await self._engine.load_policy(self.save(self._folder / str(step)), step)

    def save(self, folder: Path) -> Path:
        """Write the policy to a folder and return it."""
        save_policy(self._learner.model, self._loaded.tokenizer, folder, pictures=self._loaded.pictures)
        return folder

    async def close(self) -> None:
        await self._engine.close()

    async def _play(self, task: Task, number: int, taught: bool) -> Trajectory:
        session = Colours(self._turns)
        engine = Teacher(session, self._renderer, self.version) if taught else self._engine
        name = f"{self.version}/{task.seed}/{number}"
        sampling = Sampling(seed=random.Random(f"{self._recipe.seed}/{name}").getrandbits(31))
        model = ModelClient(engine, self._renderer, sampling=sampling, conversation=name)
        limits = Limits(max_turns=self._turns, max_tokens=self._recipe.rollout.max_tokens, timeout_seconds=600.0)
        (trajectory,) = await self.loop.run(task, session, {"main": model}, limits)
        return trajectory


def generated_tokens(groups: Sequence[Group]) -> int:
    """Return the number of tokens of all responses."""
    calls = (call for group in groups for member in group.members for call in member.trajectory.calls)
    return sum(len(call.response_ids) for call in calls)


def mean_reward(groups: Sequence[Group]) -> float:
    """Return the mean share of right answers."""
    rewards = [member.trajectory.reward for group in groups for member in group.members]
    return sum(rewards) / len(rewards)


def _load(digests: Iterable[str]) -> dict[str, bytes]:
    return {digest: BY_HASH[digest] for digest in digests}
