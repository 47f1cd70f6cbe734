"""Metrics of OSWorld's evaluators, and the score of a guest's state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from quartet.env.osworld.getters import Getter, Rule, getter
from quartet.env.osworld.guest import Guest
from quartet.env.osworld.preparing import verbs
from quartet.env.osworld.task import Evaluator, OSWorldTask
from quartet.errors import ConfigError
from quartet.registry import lookup


class Exact(Struct, forbid_unknown_fields=True):
    """Rules of `exact_match`."""

    expected: Any


class Parts(Struct, forbid_unknown_fields=True):
    """Rules of `check_include_exclude`."""

    include: list[str] = []
    exclude: list[str] = []


def _exact_match(result: Any, rules: Any) -> float:
    return float(result == rules["expected"])


def _check_include_exclude(result: Any, rules: Any) -> float:
    includes = all(part in (result or "") for part in rules.get("include", []))
    return float(result is not None and includes and not any(part in result for part in rules.get("exclude", [])))


def _compare_text_file(result: Any, expected: Any) -> float:
    return float(result is not None and result == expected)


METRICS: Mapping[str, Callable[[Any, Any], float]] = {
    "exact_match": _exact_match,
    "check_include_exclude": _check_include_exclude,
    "compare_text_file": _compare_text_file,
}
RULES: Mapping[str, type[Struct]] = {"exact_match": Exact, "check_include_exclude": Parts}
"""Form of the rules of the metrics that have any. The others compare two getters."""


class Check(NamedTuple):
    """A metric with its getters."""

    metric: Callable[[Any, Any], float]
    result: Getter
    expected: Getter


def checks(evaluator: Evaluator) -> list[Check]:
    """Return the checks of an evaluator. Raise `ConfigError` for one that this adapter does not know or that lacks a
    part. Options would change the score of a metric, so they are unknown."""
    if not evaluator.metrics:
        raise ConfigError("the evaluator has no metric", "fix the task file")
    if any(evaluator.each(evaluator.options)):
        raise ConfigError("the evaluator has options")
    fields = [evaluator.metrics, evaluator.each(evaluator.result), evaluator.each(evaluator.expected)]
    if len({len(field) for field in fields}) > 1:
        raise ConfigError("the evaluator's lists differ in length", "fix the task file")
    return [_check(*each) for each in zip(*fields, strict=True)]


def _check(name: str, result: Any, expected: Any) -> Check:
    check = Check(lookup("metric of OSWorld", name, METRICS), getter(result), getter(expected))
    if name in RULES:
        try:
            msgspec.convert(check.expected.rules if isinstance(check.expected, Rule) else None, RULES[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"the rules of the metric {name!r}: {error}", "fix the task file") from error
    return check


def obstacle(task: OSWorldTask) -> str:
    """Return the reason why a task cannot be set up or judged; empty if it can."""
    try:
        verbs([*task.config, *task.evaluator.postconfig])
        if not task.infeasible:
            checks(task.evaluator)
    except ConfigError as error:
        return error.what
    return ""


async def score(guest: Guest, judged: Sequence[Check], conj: str) -> float:
    """Return the score of the guest's state: with `and` the mean, or 0 if any is 0; with `or` the maximum.

    A getter that finds nothing scores 0. OSWorld repeats the previous result in that case.
    """
    scores = [one.metric(await one.result.read(guest), await one.expected.read(guest)) for one in judged]
    if conj == "or":
        return max(scores)
    return sum(scores) / len(scores) if all(scores) else 0.0
