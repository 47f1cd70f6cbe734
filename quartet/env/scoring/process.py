"""Child process that computes one reward: started, asked and killed by the environment's process."""

from collections.abc import Sequence

import msgspec

from quartet.env.child_process import ChildFailedError, ChildProcess
from quartet.env.deadlines import START_SECONDS
from quartet.env.rewards.base import Case, Score
from quartet.env.scoring.child import Setup, Started
from quartet.errors import ConfigError, RewardError, SetupError

ADVICE = "mend it, or name another reward in the table [env]"
GRACE_SECONDS = 1.0
"""Time in which a coroutine that was cancelled may end before its process is killed."""


class RewardProcess:
    """One child process. It answers one batch at a time."""

    def __init__(self, setup: Setup, *, start_seconds: float = START_SECONDS, confined: bool = False) -> None:
        """`start_seconds` is the limit for loading the reward."""
        self._setup, self._start_seconds = setup, start_seconds
        self._child = ChildProcess("quartet.env.scoring.child", setup.max_memory_megabytes, confined=confined)

    @property
    def running(self) -> bool:
        return self._child.running

    async def start(self) -> int:
        """Start the process and load the reward. Return the number of cases that one batch may have.

        Raise `ConfigError` if the reward has a mistake, or it or a setting of it does not exist; `SetupError` if the
        machine lacks something, or the process ends.
        """
        await self._child.start()
        try:
            answer = await self._child.ask(msgspec.msgpack.encode(self._setup), self._start_seconds)
        except ChildFailedError as error:
            raise SetupError(
                f"the reward {self._setup.path} cannot be loaded: it {error}",
                f"raise env.start_timeout_seconds or the reward's max_memory_megabytes, or {ADVICE}",
            ) from error
        started = msgspec.msgpack.decode(answer, type=Started)
        if started.error:
            await self.end()
            kind = SetupError if started.machine_lacks else ConfigError
            raise kind(f"the reward {self._setup.path} cannot be loaded: {started.error}", ADVICE)
        return started.calls_at_once

    async def score(self, cases: Sequence[Case]) -> list[Score]:
        """Return the scores of a batch. Raise `RewardError` if the process hangs or ends; it is then killed."""
        try:
            answer = await self._child.ask(msgspec.msgpack.encode(cases), self._setup.timeout_seconds, GRACE_SECONDS)
            return msgspec.msgpack.decode(answer, type=list[Score])
        except ChildFailedError as error:
            raise RewardError(str(error)) from error
        except msgspec.DecodeError as error:
            await self.end()
            raise RewardError("disturbed the protocol of its process, which was killed") from error

    async def end(self) -> None:
        """Kill the process and the processes that it started. Safe to call twice."""
        await self._child.end()
