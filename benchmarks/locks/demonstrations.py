"""Demonstrations by an expert that knows every lock's code, recorded by the same worker and loop as rollouts.

The same trajectories are used in two ways: in the success pool of a run, and as chats for supervised fine-tuning.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from transformers import PreTrainedTokenizerBase

from quartet.config import Recipe
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.env import make_pool
from quartet.env.environment.locks import LOCKS, SUITES, code, solution
from quartet.ledger import Ledger
from quartet.part import NoSettings
from quartet.policy.chat import Chat
from quartet.policy.renderer import Renderer
from quartet.rollout.client import Model
from quartet.rollout.loop.latest import LatestLoop
from quartet.rollout.worker import RolloutWorker
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import FinishReason, GroupMember, Purpose, RolloutPlan, Task

SEEDS_PER_FAMILY = 2
"""Number of demonstrated training seeds of every hard lock; together they contain all its signs."""
_CODES = {sign: button for family in LOCKS for sign, button in code(family).items()}


class Expert:
    """Engine that reads the sign and answers with the right button."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        page = str(self._tokenizer.decode(request.prompt_ids))
        sign = page.rpartition("heading ")[2].split("\n")[0].split("<")[0].strip()
        ids = self._tokenizer(f"click [{_CODES[sign]}]", add_special_tokens=False)["input_ids"]
        return GenerateResult(
            token_ids=ids, logprobs=[0.0] * len(ids), versions=[0] * len(ids), finish_reason=FinishReason.LENGTH
        )

    async def abort(self, request_id: str) -> None:
        """Do nothing: no request is ever in flight."""

    async def version(self) -> int:
        return 0

    async def close(self) -> None:
        """Do nothing: the expert holds no resources."""


def tasks(suite: str) -> list[Task]:
    """Return the demonstrated tasks of a suite."""
    hard = [family for family, lock in SUITES[suite].items() if lock.difficulty == "hard"]
    return [Task(env="locks", family=family, seed=seed) for family in hard for seed in range(SEEDS_PER_FAMILY)]


async def demonstrate(
    recipe: Recipe, ledger: Ledger, tokenizer: PreTrainedTokenizerBase, recorder: Recorder
) -> list[GroupMember]:
    """Let the expert solve the tasks of the recipe's suite. The statistics of training do not count these rollouts."""
    presence = Presence(ledger.modules, "expert")
    pool, models = make_pool(recipe.env), {ledger.policy: Model(Expert(tokenizer), Renderer(tokenizer))}
    worker = RolloutWorker(recipe, ledger, models, pool, recorder, presence)
    members: list[GroupMember] = []
    for task in tasks(recipe.env.settings["suite"]):
        steps = len(solution(task))
        group_id = ledger.groups.admit(RolloutPlan(task=task, num_rollouts=1, max_turns=steps, purpose=Purpose.EVAL))
        await worker.run_queued()
        members += ledger.groups.load(group_id).members
    return members


def write_chats(members: Sequence[GroupMember], file: Path) -> Path:
    """Write every turn of the demonstrations as one chat for supervised fine-tuning; return `file`."""
    loop = LatestLoop(NoSettings())
    chats = [Chat(messages) for member in members for messages in loop.chats(member.trajectory.turns)]
    file.write_bytes(msgspec.json.Encoder().encode_lines(chats))
    return file
