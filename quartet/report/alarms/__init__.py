"""Alarms: signs of a problem in a live run, with advice. Each rule is a function or a bound, listed in `RULES`."""

from collections.abc import Callable, Iterator
from pathlib import Path

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.report.alarms.facts import Alarm, Facts, read_facts
from quartet.report.alarms.learning import BOUNDS
from quartet.report.alarms.modules import died, refused, silent, starving, went_back
from quartet.report.alarms.numbers import disk, masked, numerics
from quartet.report.alarms.rollouts import (
    cut_off,
    dropped,
    failing,
    failing_tasks,
    infrastructure,
    no_action,
    quarantined,
    uncounted,
)
from quartet.report.status import RunStatus

__all__ = ["RULES", "Alarm", "Facts", "read_alarms"]

RULES: tuple[Callable[[Facts], Iterator[Alarm]], ...] = (
    silent,
    died,
    refused,
    went_back,
    starving,
    failing,
    infrastructure,
    uncounted,
    no_action,
    cut_off,
    dropped,
    quarantined,
    failing_tasks,
    numerics,
    *BOUNDS,
    masked,
    disk,
)


def read_alarms(run_dir: Path, ledger: Ledger, recipe: Recipe, status: RunStatus) -> list[Alarm]:
    """Return all alarms of a live run. The time taken does not grow with the length of the run."""
    facts = read_facts(run_dir, ledger, recipe, status)
    return [alarm for rule in RULES for alarm in rule(facts)]
