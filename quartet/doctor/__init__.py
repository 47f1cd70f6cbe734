"""Checks of the machine, one file per check."""

from collections.abc import Iterator
from typing import cast

from quartet.doctor.base import Doctor, Finding, Place
from quartet.part import NoSettings
from quartet.registry import find, names

__all__ = ["Finding", "Place", "examine"]


def examine(place: Place, *, before_training: bool = False) -> Iterator[tuple[str, list[Finding]]]:
    """Run all checks, or with `before_training` only those of a dry run; yield each check's name and findings."""
    for name in names("doctor"):
        doctor = cast(type[Doctor], find("doctor", name))
        if doctor.before_training or not before_training:
            yield name, list(doctor(NoSettings()).examine(place))
