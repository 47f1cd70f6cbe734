"""Run checks of `quartet.env.checks` on an environment."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from quartet import config
from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade
from quartet.errors import QuartetError
from quartet.part import NoSettings, Part
from quartet.registry import find, names


class CheckResult(Struct, frozen=True, kw_only=True):
    """Result of one check."""

    check: str
    findings: list[Finding]
    measured: str = ""
    """Measurements of the check, in one line; empty if it measures nothing."""

    @property
    def passed(self) -> bool:
        """True unless a finding is an error."""
        return all(finding.grade is not Grade.ERROR for finding in self.findings)


async def check_environment(
    env: config.Env,
    seeds: Sequence[int],
    progress: Callable[[CheckResult], None],
    checks: Sequence[str] | None = None,
) -> list[CheckResult]:
    """Run the named checks on the environment, all by default. A failure of the environment ends its check and becomes
    a finding.

    Raise `ConfigError` for an unknown check, an unknown environment, or one whose settings are invalid; `SetupError` if
    it cannot run on this machine.
    """
    results, parts = [], {name: find("env_check", name) for name in checks or names("env_check")}
    async with Subject(env, seeds) as subject:
        for name, part in parts.items():
            results.append(await _run(name, part, subject))
            progress(results[-1])
    return results


async def _run(name: str, part: type[Part], subject: Subject) -> CheckResult:
    assert issubclass(part, EnvCheck)
    check = part(NoSettings())
    try:
        findings = await check.run(subject)
    except QuartetError as error:
        findings = [Finding(grade=Grade.ERROR, what=error.what, where=subject.place("step"), advice=error.advice)]
    if subject.ships:  # a user cannot follow the advice to define another member of the class
        findings = [replace(one, advice="") if one.grade is Grade.NOTE else one for one in findings]
    return CheckResult(check=name, findings=findings, measured=check.measured)
