"""The check `families`: every family can be played, gives the same task for the same seed, and nothing for nothing."""

import asyncio

from quartet.env.check.agents import idle
from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.env.checks.resets import ADVICE, difference
from quartet.errors import QuartetError
from quartet.types import Observation, Task


class Families(EnvCheck):
    """Two resets of a task show the same goal and text in every family, and an agent that does nothing earns nothing.

    A text that changes is only a warning where the class does not set `deterministic`: the page may move on its own.
    """

    async def run(self, subject: Subject) -> list[Finding]:
        tasks = iter([subject.task(family, seed) for family in subject.families for seed in subject.seeds])
        found: list[Finding] = []

        async def play() -> None:
            for task in tasks:
                found.extend(await _problems(subject, task))

        await asyncio.gather(*(play() for _ in range(subject.env.sessions)))
        failing = {finding.what.split(",")[0] for finding in found if finding.grade is Grade.ERROR}
        self.measured = f"{len(subject.families) - len(failing)} of {len(subject.families)} families pass"
        return found


async def _problems(subject: Subject, task: Task) -> list[Finding]:
    """Play the task twice, idly. Return what is wrong with it."""
    try:
        async with subject.session() as session:
            played = [await subject.play(session, task, idle, max_turns=1) for _ in range(2)]
    except QuartetError as error:
        return [_finding(subject, task, error.what, error.advice)]
    first, again = (one.seen[0] for one in played)
    if _posed(first) != _posed(again):
        return [_finding(subject, task, f"a reset changes it: {difference(_posed(first), _posed(again))}", ADVICE)]
    if played[0].reward > 0:
        what = f"an agent that only says `done` earns {played[0].reward:g}"
        return [_finding(subject, task, what, "reward only what solves the task")]
    if first.text != again.text:
        grade = Grade.ERROR if subject.environment.deterministic else Grade.WARNING
        what = f"a reset changes its text: {difference(first.text, again.text)}"
        return [_finding(subject, task, what, ADVICE, grade)]
    return []


def _posed(observation: Observation) -> str:
    return repr((observation.goal, observation.messages))


def _finding(subject: Subject, task: Task, what: str, advice: str, grade: Grade = Grade.ERROR) -> Finding:
    what = f"{task.family}, seed {task.seed}: {what}"
    return Finding(grade=grade, what=what, where=subject.place("reset"), advice=advice)
