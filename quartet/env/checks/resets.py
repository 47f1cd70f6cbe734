"""The check `resets`: a task looks the same at every reset, whatever happened in the session before."""

from contextlib import suppress

from quartet.env.check.agents import curious, repeating, stubborn
from quartet.env.check.subject import Played, Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.errors import EnvError
from quartet.types import Observation, Task

ADVICE = "draw everything random from `task.seed` or `task.key`, and keep no state of earlier episodes"
MANY_SEEDS = 8
"""Number of seeds of which at least two should show different tasks."""


class Resets(EnvCheck):
    """The same task looks the same after an episode that ended, was cut off, abandoned, or malformed, after a step that
    exceeded its deadline, and in a new session; other seeds are other tasks."""

    async def run(self, subject: Subject) -> list[Finding]:
        found: list[Finding] = []
        for family in subject.sampled_families:
            found += await _same_task(subject, subject.task(family, subject.seeds[0]))
        return found + await _other_seeds(subject, subject.families[0])


async def _same_task(subject: Subject, task: Task) -> list[Finding]:
    """Return what differs between resets of a task after every kind of end of an episode."""
    seen: dict[str, Observation] = {}
    async with subject.session() as session:
        first = await session.reset(task)
        seen["an episode without a step"] = await session.reset(task)
        await subject.play(session, task, curious(0))
        seen["an episode"] = await session.reset(task)
        await subject.play(session, task, stubborn(2))
        seen["an episode of one repeated response"] = await session.reset(task)
        await subject.play(session, task, curious(1), max_turns=1)
        seen["an episode that was abandoned"] = await session.reset(task)
        await subject.play(session, task, lambda _: "\x00", max_turns=1)
        seen["a malformed response"] = await session.reset(task)
    async with subject.hurried_session() as session:
        with suppress(EnvError):  # a step that never waits has no deadline to exceed
            await subject.play(session, task, curious(0), max_turns=1)
        seen["a step that exceeded its deadline"] = await session.reset(task)
    async with subject.session() as session:
        seen["the start of another session"] = await session.reset(task)
    if not _shows(first):
        what = f"{task.family}, seed {task.seed}, shows nothing at reset: goal, text, messages and pictures are empty"
        return [
            Finding(grade=Grade.ERROR, what=what, where=subject.place("reset"), advice="return what a policy reads")
        ]
    # A screen may change on its own where the environment does not promise the contrary.
    serious = ("goal", "messages", "tools", *(("text",) if subject.environment.deterministic else ()))
    for after, observation in seen.items():
        for name in ("goal", "messages", "tools", "text"):
            before, now = getattr(first, name), getattr(observation, name)
            if before != now:
                grade = Grade.ERROR if name in serious else Grade.WARNING
                what = f"{task.family}, seed {task.seed}: `{name}` changed after {after}: {difference(before, now)}"
                return [Finding(grade=grade, what=what, where=subject.place("reset"), advice=ADVICE)]
    return []


async def _other_seeds(subject: Subject, family: str) -> list[Finding]:
    """Return a finding if the seed has no effect on what a task shows at first, unless equal responses show one later:
    a game may hide what the seed draws. Without the promise of `deterministic`, chance may be the reason of that."""
    if subject.environment.num_train_tasks(family) == 1:
        return []
    async with subject.session() as session:
        seen = [await session.reset(subject.task(family, seed)) for seed in range(MANY_SEEDS)]
    if any((one.goal, one.text, one.messages, one.pictures) != _view(seen[0]) for one in seen):
        return []
    if subject.environment.deterministic and await _differ_later(subject, family):
        return []
    what = f"the first {MANY_SEEDS} seeds of {family} show the same first observation"
    advice = (
        "draw tasks from `task.seed`; for a single task, let `num_train_tasks` return 1; if the tasks differ only in "
        "what they hide at first, nothing is wrong"
    )
    return [Finding(grade=Grade.WARNING, what=what, where=subject.place("reset"), advice=advice)]


async def _differ_later(subject: Subject, family: str) -> bool:
    """Return whether equal responses get different results in tasks of different seeds."""
    async with subject.session() as session:
        first = await subject.play(session, subject.task(family, 0), curious(0))
        for seed in range(1, MANY_SEEDS):
            turns = len(first.responses)
            again = await subject.play(session, subject.task(family, seed), repeating(first.responses), turns)
            if _course(again) != _course(first):
                return True
    return False


def _course(played: Played) -> list[object]:
    """Return what an episode showed after its first observation, and its rewards."""
    return [(_view(result.observation), result.observation.error, result.reward) for result in played.results]


def _view(observation: Observation) -> tuple[object, ...]:
    return observation.goal, observation.text, observation.messages, observation.pictures


def _shows(observation: Observation) -> bool:
    return any(_view(observation))


def difference(before: object, now: object) -> str:
    """Return the first place at which two values differ, with a few characters around it."""
    one, other = str(before), str(now)
    place = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(0, place - 20)
    return f"{one[start : place + 20]!r} and {other[start : place + 20]!r}"
