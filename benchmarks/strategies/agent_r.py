"""Do Agent-R's spliced revision trajectories give more success than imitation of the successes alone?"""

import random
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from statistics import fmean
from typing import ClassVar

import msgspec

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import demonstration
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.locks.signs import Player, Signs
from benchmarks.strategies.base import higher
from quartet.config import Recipe
from quartet.env.environment.locks import FIRST_HELD_OUT_SEED, JAMMED, LOCKS, LocksEnv, buttons, code, row
from quartet.exchange.chat import ChatLine, ChatWriter
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.exchange.revisions import REVISIONS, RevisionWriter
from quartet.types import Observation, Purpose, StepResult, Task

WRITERS = {"chat": ChatWriter, "revisions": RevisionWriter}
"""Exporter of each format that `sft.data` names."""
KEPT, RESET = (
    [name for name, lock in LOCKS.items() if lock.wrong == wrong and lock.difficulty != "hard"]
    for wrong in ("jams", "resets")
)
"""Easy and medium locks in which a wrong press can be taken back, and those that a wrong press resets."""
REVISION_CHANCE = 0.01
"""Initial probability of each text of a revision at every page."""
TRAINING_SEEDS, ROLLOUTS, HELD_OUT_TASKS, EPISODES = 3, 8, 3, 4
STEPS, EXCHANGES_PER_BATCH = 40, 64
"""Number of train steps of imitation, and of imitated responses in each."""
Exchange = tuple[int, int]
"""Tokens of a page and of the imitated response."""


class Main(Experiment):
    """Both arms imitate the same number of responses, from the same rollouts of the initial policy: those of successes,
    or those of successes and of the revision trajectories. The exporters are those of `quartet ledger export`.

    A wrong press jams some locks; the text of a revision takes it back. Other locks return to their first sign after a
    wrong press, where there is nothing to take back: there the method should be refuted.
    """

    common = (
        *("rollout.loop=latest", "rollout.max_turns=8", "loss.terms=[{name='nll',uses=['anchor','fresh']}]"),
        *("train.learning_rate=1.0", "train.groups_per_batch=1"),
    )
    arms: ClassVar = {"successes": ["sft.data=chat.jsonl"], "revisions": ["sft.data=chat+revisions.jsonl"]}
    figures: ClassVar = {
        "end": Figure("success where a press can be taken back, %", 1, 100),
        "recovered": Figure("the same after a wrong first press, %", 1, 100),
        "first": Figure("success at the first try, all locks, %", 1, 100),
        "reset": Figure("success where a wrong press resets the lock, %", 1, 100),
    }
    claims = (
        higher("Agent-R: more success where a press can be taken back", "revisions", "successes", "end"),
        higher("Agent-R: more success after a wrong first press", "revisions", "successes", "recovered"),
        Claim(
            text="Agent-R: at most 3 points less success at the first try",
            arm="revisions",
            against="successes",
            figure="first",
            above=-0.03,
        ),
        Claim(
            text="Agent-R: less success where a wrong press resets the lock",
            arm="revisions",
            against="successes",
            figure="reset",
            below=0,
        ),
    )
    budget_tokens = 0
    """The rollouts of the initial policy are the same in both arms, whatever their tokens."""

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Signs([*KEPT, *RESET], _start())
        policy = TablePolicy(world, settings, seed)
        player = Player(world, policy, random.Random(f"rollouts {seed}"))
        records = [*_collected(player)]
        tokens, draw = policy.tokens, random.Random(f"imitation {seed}")
        imitated = [
            exchange
            for form in Path(policy.recipe.sft.data).stem.split("+")
            for exchange in _exported(form, records, world, policy.recipe)
        ]
        for _ in range(STEPS):
            drawn = draw.choices(imitated, k=EXCHANGES_PER_BATCH)
            policy.train_now([[demonstration([page], [response]) for page, response in drawn]])
        held_out = {kind: _tasks(kind, FIRST_HELD_OUT_SEED, HELD_OUT_TASKS) for kind in ("kept", "reset")}
        figures = {
            "end": _success(player, held_out["kept"], ReversibleLocks()),
            "recovered": _success(player, held_out["kept"], MisledLocks()),
            "first": fmean(world.first_try(policy, task) for tasks in held_out.values() for task in tasks),
            "reset": _success(player, held_out["reset"], ReversibleLocks()),
        }
        return Measured(figures=figures, tokens=tokens)


class ReversibleLocks(LocksEnv):
    """Locks in which the text of a revision takes the press back that jammed the lock."""

    async def step(self, action: str) -> StepResult:
        if action in REVISIONS and self._jammed and self._task:
            self._jammed = False
            return self._result(self._task)
        return await super().step(action)


class MisledLocks(ReversibleLocks):
    """The same, in which a wrong press was made at the first sign."""

    async def reset(self, task: Task) -> Observation:
        await super().reset(task)
        first = row(task)[0]
        wrong = code(task.family)[first] % buttons(task.family)[first] + 1
        return (await self.step(f"click [{wrong}]")).observation


def _start() -> dict[str, dict[str, float]]:
    """Return the initial probabilities: uniform over the buttons of each sign, and sometimes a revision."""
    counts = {sign: count for family in (*KEPT, *RESET) for sign, count in buttons(family).items()}
    counts[JAMMED] = max(counts.values())
    revisions, presses = dict.fromkeys(REVISIONS, REVISION_CHANCE), 1 - REVISION_CHANCE * len(REVISIONS)
    return {
        sign: {f"click [{button}]": presses / count for button in range(1, count + 1)} | revisions
        for sign, count in counts.items()
    }


def _tasks(kind: str, first_seed: int, count: int) -> list[Task]:
    families = {"kept": KEPT, "reset": RESET}[kind]
    return [Task(env="locks", family=one, seed=first_seed + n) for one in families for n in range(count)]


def _collected(player: Player) -> Iterator[TrajectoryRecord]:
    """Yield the records of all rollouts of the initial policy, group by group."""
    env = ReversibleLocks()
    for group, task in enumerate([*_tasks("kept", 0, TRAINING_SEEDS), *_tasks("reset", 0, TRAINING_SEEDS)]):
        for number in range(ROLLOUTS):
            origin = Provenance(
                run="agent_r",
                purpose=Purpose.TRAIN,
                rollout_id=group * ROLLOUTS + number,
                group_id=group,
                attempt=1,
                created_at=0.0,
            )
            yield TrajectoryRecord.of(player.play(task, env), origin, None)


def _exported(form: str, records: Iterable[TrajectoryRecord], world: Signs, recipe: Recipe) -> Iterator[Exchange]:
    """Yield the exchanges in the lines of an export. Of the format `chat` they are those of successes."""
    file = BytesIO()
    writer = WRITERS[form](file, recipe)
    for record in records:
        if form != "chat" or record.trajectory.success:
            writer.write(record)
    writer.finish()
    for line in msgspec.json.Decoder(ChatLine).decode_lines(file.getvalue()):
        read, answer = line.messages
        yield world.page_of(read), world.token(answer.content)


def _success(player: Player, tasks: Sequence[Task], env: LocksEnv) -> float:
    """Return the share of successes over held-out tasks."""
    return fmean(player.play(task, env).success for task in tasks for _ in range(EPISODES))
