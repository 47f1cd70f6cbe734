"""The check `experts`: experts solve their tasks, and wrong solutions do not."""

from quartet.env.check.experts import play_experts
from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade


class Experts(EnvCheck):
    """Every expert gets a reward of at least 1; an agent that does nothing, and a wrong solution, get at most 0."""

    async def run(self, subject: Subject) -> list[Finding]:
        environment, families = subject.environment, subject.families
        without = [family for family in families if environment.expert(family, subject.seeds[0]) is None]
        tasks = [subject.task(family, seed) for family in families if family not in without for seed in subject.seeds]
        played = await play_experts(environment, subject.pool, tasks)
        found = [
            Finding(
                grade=Grade.ERROR,
                what=f"{result.family}, seed {result.seed}: {result.summary}",
                where=subject.place("step"),
                advice="the expert should get at least 1, an agent that does nothing and a wrong solution at most 0",
            )
            for result in played
            if not result.passed
        ]
        for label, feasible in (("feasible", True), ("infeasible", False)):
            chosen = [result for result in played if result.feasible is feasible]
            if chosen:
                passed = sum(result.passed for result in chosen)
                self.measured += f"{', ' if self.measured else ''}{label}: {passed} of {len(chosen)} tasks pass"
        if without:
            what = f"{len(without)} of {len(families)} families have no expert, such as {without[0]}"
            advice = "define `expert`: then it is known that the task can be solved"
            found.append(Finding(grade=Grade.NOTE, what=what, advice=advice))
        return found
