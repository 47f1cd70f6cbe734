"""Scores of responses by one reward: a queue of cases, and child processes that work on it."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from quartet.config import Reward as RewardChoice
from quartet.env.deadlines import START_SECONDS
from quartet.env.rewards.base import Case, Score, failed
from quartet.env.rewards.function import Function
from quartet.env.scoring.child import Setup
from quartet.env.scoring.process import RewardProcess
from quartet.errors import RewardError
from quartet.registry import find, own_settings


class _Call(NamedTuple):
    case: Case
    score: "asyncio.Future[Score]"


class Scorer:
    """The child processes of one reward. A process that hangs or ends is replaced at the next case."""

    def __init__(
        self,
        choice: RewardChoice,
        *,
        label: str = "",
        start_seconds: float = START_SECONDS,
        confined: bool = False,
    ) -> None:
        """Describe the processes; confined ones run under Bubblewrap.

        `label` is the component's name if the reward is a single number; by default the reward's name without its
        module. `start_seconds` is the limit for loading the reward.
        """
        part = find("reward", choice.name)
        self.name, self._weight = choice.name, choice.weight
        self._setup = Setup(
            path=part.path if issubclass(part, Function) else f"{part.__module__}:{part.__qualname__}",
            label=label or _short(choice),
            settings=own_settings(choice).model_dump(mode="json"),
            timeout_seconds=choice.timeout_seconds,
            max_memory_megabytes=choice.max_memory_megabytes,
        )
        self._calls: asyncio.Queue[_Call] = asyncio.Queue()
        self._processes = [
            RewardProcess(self._setup, start_seconds=start_seconds, confined=confined) for _ in range(choice.processes)
        ]
        self._at_work: list[asyncio.Task[None]] = []
        self._calls_at_once = 1
        self._starting = asyncio.Lock()

    async def check(self) -> None:
        """Start a process that loads the reward, and end it. Raise the errors of `RewardProcess.start`."""
        process = self._processes[0]
        await process.start()
        await process.end()

    async def start(self) -> None:
        """Start the processes unless they run. Raise the errors of `RewardProcess.start`."""
        async with self._starting:
            if not self._at_work:
                self._calls_at_once = min(await asyncio.gather(*(process.start() for process in self._processes)))
                self._at_work = [asyncio.create_task(self._work(process)) for process in self._processes]

    async def score(self, case: Case) -> dict[str, float]:
        """Return the weighted components of a case's reward. Raise `RewardError` if it cannot be computed."""
        call = _Call(case, asyncio.get_running_loop().create_future())
        self._calls.put_nowait(call)
        score = await call.score
        if score.error:
            raise RewardError(
                f"the reward {self.name} {score.error}",
                "mend the reward, or raise its limits timeout_seconds and max_memory_megabytes",
            )
        return {name: self._weight * value for name, value in score.components.items()}

    async def close(self) -> None:
        """Kill the processes. Safe to call twice."""
        for task in self._at_work:
            task.cancel()
        await asyncio.gather(*self._at_work, return_exceptions=True)
        self._at_work = []
        for process in self._processes:
            await process.end()

    async def _work(self, process: RewardProcess) -> None:
        while True:
            calls = [await self._calls.get()]
            while len(calls) < self._calls_at_once and not self._calls.empty():
                calls.append(self._calls.get_nowait())
            await _answer([call for call in calls if not call.score.done()], process)


def scorers(choices: Sequence[RewardChoice], start_seconds: float) -> list[Scorer]:
    """Describe the processes of several rewards. Those with the same name in different modules, such as `compute_score`
    of verl, are labelled with their modules, since the names of components are unique."""
    names = [_short(choice) for choice in choices]
    return [
        Scorer(choice, label=name if names.count(name) == 1 else choice.name, start_seconds=start_seconds)
        for choice, name in zip(choices, names, strict=True)
    ]


def _short(choice: RewardChoice) -> str:
    return choice.name.rpartition(":")[2]


async def _answer(calls: Sequence[_Call], process: RewardProcess) -> None:
    """Score the cases in one batch. If that fails, end the process and score each alone, since one is the cause."""
    if not calls:
        return
    try:
        if not process.running:
            await process.start()
        scores = await process.score([call.case for call in calls])
        if len(scores) != len(calls):
            raise RewardError(f"returned {len(scores)} scores for {len(calls)} responses")
    except Exception as error:  # noqa: BLE001  (without this task, later responses would wait for ever)
        await process.end()
        if len(calls) > 1:
            for call in calls:
                # The first ones may take as long as their sessions wait.
                await _answer([call] if not call.score.done() else [], process)
            return
        scores = [failed(error)]
    for call, score in zip(calls, scores, strict=True):
        if not call.score.done():  # its session may have been closed
            call.score.set_result(score)
