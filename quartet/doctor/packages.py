"""Check Quartet's required and optional packages."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from quartet.doctor.base import Doctor, Finding, Place, lacks, note, ok

DISTRIBUTION = "quartet-rl"
OWN_EXTRAS = re.compile(r"quartet-rl\[")


class Packages(Doctor):
    """Check Quartet's required and optional packages."""

    def examine(self, place: Place) -> Iterator[Finding]:
        """Check every requirement in the metadata of the installed distribution."""
        try:
            requirements = [Requirement(line) for line in requires(DISTRIBUTION) or [] if not OWN_EXTRAS.match(line)]
        except PackageNotFoundError:
            yield note("Quartet runs from a folder and is not installed", "pip install -e . in its checkout")
            return
        missing = [problem for one in requirements if _needed(one, "") and (problem := _problem(one))]
        if missing:
            yield lacks(f"packages: {', '.join(missing)}", f"pip install --upgrade {DISTRIBUTION}")
        else:
            yield ok(f"all packages that {DISTRIBUTION} {version(DISTRIBUTION)} requires")
        for extra in sorted({name for one in requirements for name in _extras(one)} - {"test"}):
            absent = [one.name for one in requirements if extra in _extras(one) and _problem(one)]
            if absent:
                yield note(f"extra {extra}: without {', '.join(absent)}", f"pip install '{DISTRIBUTION}[{extra}]'")
            else:
                yield ok(f"extra {extra}")


def _needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _extras(requirement: Requirement) -> set[str]:
    return set(re.findall(r"extra == [\"']([^\"']+)", str(requirement.marker or "")))


def _problem(requirement: Requirement) -> str:
    """Return the problem with the installed version; empty if there is no problem."""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"no {requirement.name}"
    fits = requirement.specifier.contains(installed, prereleases=True)
    return "" if fits else f"{requirement.name} {installed} instead of {requirement.specifier}"
