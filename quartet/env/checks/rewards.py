"""The check `rewards`: range, kind and success of the rewards of agents that do not solve the task."""

from quartet.env.check.agents import curious, idle
from quartet.env.check.subject import Played, Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.types import Task

EPISODES = 8
"""Number of random episodes of a family."""


class Rewards(EnvCheck):
    """Doing nothing earns nothing, and no episode earns less than -1 or more than 1."""

    async def run(self, subject: Subject) -> list[Finding]:
        found: list[Finding] = []
        rewards: list[float] = []
        for family in subject.sampled_families:
            async with subject.session() as session:
                for seed in range(EPISODES):
                    task = subject.task(family, subject.seeds[0] + seed)
                    lazy = await subject.play(session, task, idle)
                    if lazy.reward > 0:
                        found.append(_error(subject, task, f"an agent that only says `done` earns {lazy.reward:g}"))
                    played = await subject.play(session, task, curious(seed))
                    rewards.append(played.reward)
                    found += _problems(subject, task, played)
                    if found:
                        return found
        self.measured = f"random agent: {min(rewards):g} to {max(rewards):g}, mean {sum(rewards) / len(rewards):.2g}"
        return found


def _problems(subject: Subject, task: Task, played: Played) -> list[Finding]:
    """Return what is wrong with the rewards of an episode."""
    if not -1 <= played.reward <= 1:
        what = f"{task.family}, seed {task.seed}: an episode earns {played.reward:g}"
        advice = "scale rewards to -1 ... 1: success without `info['success']` is a reward of at least 1"
        return [Finding(grade=Grade.WARNING, what=what, where=subject.place("step"), advice=advice)]
    told = played.results[-1].info.get("success") if played.results else None
    if told is not None and not isinstance(told, bool):
        return [_error(subject, task, f"info['success'] is {told!r:.40}, not True or False")]
    return []


def _error(subject: Subject, task: Task, what: str) -> Finding:
    return Finding(
        grade=Grade.ERROR,
        what=f"{task.family}, seed {task.seed}: {what}",
        where=subject.place("step"),
        advice="reward only what solves the task, and report its success as a bool",
    )
