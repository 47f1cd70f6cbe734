"""A taskset of verifiers: sums, which two of its own reward functions score."""

from collections.abc import Iterable

from verifiers import v1 as vf


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == str(self.data.answer))

    @vf.reward(weight=0.25)
    async def close(self, trace: vf.Trace) -> float:
        reply = trace.last_reply.strip()
        return float(reply.isdigit() and len(reply) < 4 and abs(int(reply) - self.data.answer) <= 1)


class Sums(vf.Taskset[SumTask]):
    def load(self) -> Iterable[SumTask]:
        for number in range(20):
            yield SumTask(SumData(prompt=f"What is {number} + {number}?", answer=2 * number, system_prompt="Add."))


class UnscoredTask(vf.Task[SumData]):
    @vf.reward
    async def nothing(self, trace: vf.Trace) -> dict[str, float]:
        return {}


class Unscored(vf.Taskset[UnscoredTask]):
    def load(self) -> Iterable[UnscoredTask]:
        for number in range(20):
            yield UnscoredTask(SumData(prompt=f"{number}", answer=number))
