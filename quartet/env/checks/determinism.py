"""The check `determinism`: the same actions in a task give the same observations, also beside another episode."""

from quartet.env.check.agents import curious, repeating
from quartet.env.check.subject import Played, Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.env.checks.resets import difference
from quartet.types import Observation, Task


class Determinism(EnvCheck):
    """Repeated actions give the same observations and rewards, if the class sets `deterministic`."""

    async def run(self, subject: Subject) -> list[Finding]:
        promised = subject.environment.deterministic
        tasks = [subject.task(family, subject.seeds[0]) for family in subject.sampled_families]
        differences = [found for task in tasks if (found := await _difference(subject, task))]
        if differences and promised:
            advice = "draw random numbers from `task.key` in `reset`, share no state, or set `deterministic = False`"
            return [
                Finding(grade=Grade.ERROR, what=what, where=subject.place("step"), advice=advice)
                for what in differences
            ]
        if not differences and not promised:
            what = "the same actions gave the same observations in every repetition"
            advice = "set `deterministic = True` if they always do: rollouts can then fork"
            return [Finding(grade=Grade.NOTE, what=what, advice=advice)]
        return []


async def _difference(subject: Subject, task: Task) -> str:
    """Play an episode, then repeat it turn by turn in turn with an episode of another session. Return the first
    difference, or nothing."""
    async with subject.session() as session:
        first = await subject.play(session, task, curious(task.seed))
    again = await _repeated(subject, task, first)
    for turn, (before, now) in enumerate(zip(first.seen, again.seen, strict=False)):
        if _shown(before) != _shown(now):
            return f"{task.family}, seed {task.seed}, turn {turn}: {difference(_shown(before), _shown(now))}"
    rewards = [[result.reward for result in played.results] for played in (first, again)]
    if rewards[0] != rewards[1]:
        return f"{task.family}, seed {task.seed}: the rewards {rewards[0]} became {rewards[1]}"
    return ""


async def _repeated(subject: Subject, task: Task, first: Played) -> Played:
    """Repeat the responses while another session plays the same task in another way."""
    if subject.env.sessions < 2:
        async with subject.session() as session:
            return await subject.play(session, task, repeating(first.responses), len(first.responses))
    async with subject.session() as session, subject.session() as other:
        await other.reset(task)
        again = Played(seen=[await session.reset(task)])
        running, act = True, curious(-1)
        for response in first.responses:
            if running:
                beside = act(again.seen[-1])
                result = await (other.step(beside) if isinstance(beside, str) else other.act(beside))
                running = not (result.terminated or result.truncated)
            again.results.append(await (session.step(response) if isinstance(response, str) else session.act(response)))
            again.seen.append(again.results[-1].observation)
            if again.ended:
                break
        return again


def _shown(observation: Observation) -> str:
    """Return what a policy reads, except for pictures, whose bytes may depend on the machine."""
    return repr((observation.goal, observation.text, observation.error, observation.messages))
