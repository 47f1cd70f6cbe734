"""The check `declaration`: the class of the environment and its sessions have the members of the interface."""

import inspect

from quartet.env.check.subject import Subject
from quartet.env.checks.base import EnvCheck, Finding, Grade

METHODS = {"reset": ["task"], "step": ["action"], "close": []}
"""Methods of every session, with their parameters."""
OPTIONAL = {
    "snapshots": {"snapshot": [], "restore": ["task", "snapshot"]},
    "typed_actions": {"act": ["actions"]},
}
"""Members of the class that promise further methods of the session."""


class Declaration(EnvCheck):
    """The class and its sessions have the members that the interface requires."""

    async def run(self, subject: Subject) -> list[Finding]:
        environment = subject.environment
        found = [
            Finding(grade=Grade.ERROR, what=f"the family {family!r} is listed twice", advice="give each another name")
            for family in sorted({name for name in subject.families if subject.families.count(name) > 1})
        ]
        for family in subject.families:
            turns = environment.max_turns(family)
            if turns is not None and turns < 1:
                found.append(
                    Finding(grade=Grade.ERROR, what=f"max_turns({family!r}) is {turns}", advice="give 1 or more")
                )
        if not environment.grammar and not environment.typed_actions:
            what = f"{type(environment).__name__} has no `grammar`"
            advice = "set it: the alarm about responses without a valid action shows it"
            found.append(Finding(grade=Grade.NOTE, what=what, advice=advice))
        return found + (_methods(subject) if subject.makes_sessions else [])


def _methods(subject: Subject) -> list[Finding]:
    """Return the methods that a session lacks, or that take other parameters."""
    expected = METHODS | {
        name: parameters
        for member, methods in OPTIONAL.items()
        if getattr(subject.environment, member)
        for name, parameters in methods.items()
    }
    found = []
    for name, parameters in expected.items():
        method, kind = getattr(subject.example, name, None), type(subject.example).__name__
        written = f"{name}({', '.join(parameters)})"
        if method is None:
            what, advice = (
                f"{kind} has no method {written}",
                "define it, or derive the class from `quartet.env.base.Env`",
            )
            found.append(Finding(grade=Grade.ERROR, what=what, where=subject.place(name), advice=advice))
        elif not _accepts(method, len(parameters)):
            what, advice = (
                f"{kind}.{name}{inspect.signature(method)} cannot be called as {written}",
                f"define {written}",
            )
            found.append(Finding(grade=Grade.ERROR, what=what, where=subject.place(name), advice=advice))
    return found


def _accepts(method: object, count: int) -> bool:
    """Return whether a bound method can be called with `count` positional arguments."""
    try:
        inspect.signature(method).bind(*range(count))  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
