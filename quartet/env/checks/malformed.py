"""The check `malformed`: a malformed response is the policy's mistake: an error that it reads, and no failure."""

from quartet.env.check.agents import MALFORMED
from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.errors import QuartetError


class Malformed(EnvCheck):
    """Malformed responses raise nothing, are not rewarded, and are answered by an error or a text."""

    async def run(self, subject: Subject) -> list[Finding]:
        task, found, unanswered = subject.task(subject.families[0], subject.seeds[0]), list[Finding](), 0
        rewarded: list[str] = []
        failures: set[str] = set()
        async with subject.session() as session:
            for response in MALFORMED:
                opening = await session.reset(task)
                try:
                    result = await session.step(response)
                except QuartetError as error:
                    if error.what in failures:
                        continue
                    failures.add(error.what)
                    what = f"the response {response[:30]!r} is a failure of the environment: {error.what}"
                    advice = "return an observation with `error` set: a malformed response is the policy's mistake"
                    found.append(Finding(grade=Grade.ERROR, what=what, where=subject.place("step"), advice=advice))
                    continue
                if result.reward > 0:
                    rewarded.append(response)
                seen, ended = result.observation, result.terminated or result.truncated
                unanswered += not (ended or seen.error or seen.messages or seen.text != opening.text)
        if rewarded:
            what = f"{len(rewarded)} of {len(MALFORMED)} malformed responses are rewarded, such as {rewarded[0][:30]!r}"
            advice = "reward only what solves the task"
            found.append(Finding(grade=Grade.ERROR, what=what, where=subject.place("step"), advice=advice))
        if unanswered:
            what = f"{unanswered} of {len(MALFORMED)} malformed responses change nothing that the policy reads"
            advice = "set `Observation.error`, so that the policy learns that its response had no effect"
            found.append(Finding(grade=Grade.WARNING, what=what, where=subject.place("step"), advice=advice))
        return found
