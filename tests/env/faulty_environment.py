"""An environment whose sessions do what the action says, for tests of faults."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from msgspec.structs import replace

from quartet.env.base import Env, Environment
from quartet.errors import EnvError
from quartet.types import Observation, StepResult, Task


class Session:
    """Plain functions, each of which may do anything to its process."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []

    def reset(self, task: Task) -> Observation:
        return Observation(goal=f"episode of seed {task.seed}", text=str(os.getpid()))

    def step(self, action: str) -> Any:
        return getattr(self, f"_{action.replace(' ', '_')}")()

    def _do_nothing(self) -> StepResult:
        return self._seen("nothing")

    def _eat_memory(self) -> None:
        while True:
            self.kept.append(bytearray(64 << 20))

    def _fork(self) -> StepResult:
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return self._seen(str(sleeper.pid))

    def _fork_many(self) -> StepResult:
        pids = []
        for _ in range(4):
            pids.append(os.fork())
            if pids[-1] == 0:
                time.sleep(600)
        return self._seen(" ".join(map(str, pids)))

    def _never_return(self) -> None:
        while True:
            pass

    def _exit(self) -> None:
        os._exit(3)

    def _crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def _fail(self) -> None:
        raise ValueError("the sky is down")

    def _return_garbage(self) -> dict[str, str]:
        return {"reward": "much"}

    def _reward_none(self) -> StepResult:
        return replace(self._seen("nothing"), rewards={"task": None})  # type: ignore[dict-item]

    def _reward_beyond_floats(self) -> StepResult:
        return replace(self._seen("nothing"), reward=10**400)

    def _print(self) -> StepResult:
        os.write(1, b"\xff" * 100_000)
        return self._seen("nothing")

    def _seen(self, text: str) -> StepResult:
        return StepResult(observation=Observation(goal="", text=text), reward=0.0, terminated=False)

    async def close(self) -> None:
        pass


class Faulty(Environment):
    """Sessions that fail on request."""

    def families(self) -> list[str]:
        return ["faults"]

    def session(self) -> Env:
        return Session()  # type: ignore[return-value]


class SlowlyStarted(Faulty):
    """Sessions that need 3 s to start."""

    def session(self) -> Env:
        time.sleep(3)
        return super().session()


class NeverStarted(Faulty):
    """Sessions that cannot be made."""

    def session(self) -> Env:
        raise EnvError("no room for another browser")
