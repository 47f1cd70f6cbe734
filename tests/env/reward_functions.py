"""Reward functions as users write them, and in every way in which they fail."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quartet.env.rewards.base import Case, Reward, Score


def misbehaving(response: str, solution: str, bonus: float = 0.0) -> Any:
    """Do what the response says; otherwise compare it with the row's solution."""
    os.write(1, b"output of the function must not disturb the protocol\n")
    match response:
        case "sleep":
            time.sleep(1000)
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), 9)
        case "allocate":
            return len(bytearray(1 << 33))
        case "nan":
            return float("nan")
        case "component":
            return {"right": 1.0, "style": float("inf")}
        case "none":
            return None
        case "text":
            return "1.0"
        case "nothing":
            return {}
        case "raise":
            raise ValueError("boom")
    return {"right": float(response == solution), "bonus": bonus}


MET = asyncio.Event()


async def waits(response: str) -> float:
    """Wait for a call with `met`, which ends only if several run at the same time; or hang, also when cancelled."""
    match response:
        case "forever":
            await asyncio.sleep(1000)
        case "deaf":
            misbehaving("sleep", "")
        case "meet":
            await MET.wait()
        case "met":
            MET.set()
    return 1.0


def exits_once(response: str) -> float:
    """End the process at the first call with the name of a file that does not exist yet."""
    if not Path(response).exists():
        Path(response).touch()
        os._exit(1)
    return 1.0


async def exits_in_company(responses: list[str]) -> list[float]:
    """End the process in any batch that has a fatal response."""
    if "exit" in responses:
        os._exit(1)
    return [float(len(responses))] * len(responses)


def trl_style(prompts: list[Any], completions: list[Any], solution: list[str], **kwargs: Any) -> list[float]:
    """Reward function of TRL: lists in, a list out; columns by name."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    assert len(prompts) == len(kwargs["responses"])
    return [float(text == right) for text, right in zip(texts, solution, strict=True)]


def raises_in_company(completions: list[str]) -> list[float]:
    """Score numbers, and raise an exception for a batch that has any other response."""
    return [float(text) for text in completions]


class Pair:
    """Value like a tensor of two elements."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


def pairs(responses: list[str]) -> list[Any]:
    return [Pair() if text == "pair" else 1.0 for text in responses]


def verl_dict(solution_str: str, ground_truth: str) -> dict[str, Any]:
    """Reward function of verl that returns its reward with further values, as its `math_dapo` does."""
    right = solution_str == ground_truth
    return {"score": 1.0 if right else -1.0, "acc": right, "pred": solution_str}


def verl_style(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """Reward function of verl."""
    return float(data_source == "test" and solution_str == ground_truth and extra_info is None)


def too_few(responses: list[str]) -> list[float]:
    return []


class LoadsLong(Reward):
    """A part that loads for longer than its time."""

    def __init__(self, settings: Any) -> None:
        time.sleep(1000)

    def score(self, case: Case) -> float:
        return 1.0


class Forgets(Reward):
    """A part that returns no scores for a response `forget`."""

    def score(self, case: Case) -> float:
        return 1.0

    async def score_all(self, cases: Sequence[Case], timeout_seconds: float) -> list[Score]:
        return [Score(components={"forgets": 1.0}) for case in cases if case.response != "forget"]


class Length(Reward):
    """A part at `module:Class`."""

    def score(self, case: Case) -> float:
        return float(len(case.response))


limit = Path("not a function")


def hangs_in_company(responses: list[str], record: str) -> list[float]:
    with Path(record).open("a") as file:
        file.write(f"{''.join(responses)}\n")
    if len(responses) > 1:
        time.sleep(1000)
    return [1.0]
