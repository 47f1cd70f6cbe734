"""Reward of a task: run its tests in the files that the agent left, and read the file that they write."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from quartet.env.harbor.sandbox import DamagedError, Sandbox
from quartet.env.harbor.task import HarborTask
from quartet.env.reward import number
from quartet.errors import RewardError

MAX_REWARD_BYTES = 1 << 16
MAIN = "reward"
"""Reward of a file with several that is the task's; without it their sum is."""


def judge(task: HarborTask, sandbox: Sandbox, limit_seconds: float) -> dict[str, float]:
    """Return the rewards by name; 0 if the agent left files in which nothing starts.

    Raise `RewardError` if the tests take too long or write no reward.
    """
    try:
        return _tested(task, sandbox, limit_seconds)
    except DamagedError:
        return {MAIN: 0.0}


def _tested(task: HarborTask, sandbox: Sandbox, limit_seconds: float) -> dict[str, float]:
    """Run the tests and return what they write."""
    written = sandbox.folder("verifier")
    seconds = min(limit_seconds, task.config.verifier.timeout_sec)
    ran = sandbox.run(
        "chmod +x /tests/test.sh; /tests/test.sh",
        task.workdir,
        seconds,
        variables=task.variables | task.config.verifier.env,
        shown={"/tests": sandbox.folder("tests", task.folder / "tests"), "/logs/verifier": written},
        characters=600,
    )
    if ran.status is None:
        raise RewardError(
            f"the tests of {task.folder.name} did not end within {seconds:g} s", "raise env.test_timeout_seconds"
        )
    rewards = _written(written)
    if rewards is None:
        raise RewardError(
            f"the tests of {task.folder.name} wrote no reward and ended with status {ran.status}: {ran.output.strip()}",
            "tests/test.sh must write /logs/verifier/reward.txt or reward.json",
        )
    return rewards


def _written(folder: Path) -> dict[str, float] | None:
    """Return the rewards of reward.json, else of reward.txt; None if there is neither."""
    data = _content(folder / "reward.json")
    if data is not None:
        return _parts(data)
    text = _content(folder / "reward.txt")
    return None if text is None else {MAIN: number(text)}


def _parts(text: str) -> dict[str, float]:
    """Return the rewards of a JSON object; NaN for what is no number. Raise `RewardError` for any other text."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"reward.json is not JSON: {error}", "mend the task's tests") from error
    if not isinstance(found, dict) or not found:
        raise RewardError(f"reward.json has no named rewards: {text:.80}", 'write {"reward": 1.0}')
    rewards = {name: number(value) for name, value in found.items()}
    return {MAIN: rewards[MAIN]} if MAIN in rewards else rewards


def _content(file: Path) -> str | None:
    """Return the text of a regular file; None if there is none. A link is not followed: the agent may have made it."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as opened:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return opened.read(MAX_REWARD_BYTES).decode(errors="replace")
