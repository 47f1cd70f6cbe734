"""Every metric is declared once, named alike, and documented."""

import re
from pathlib import Path

import pytest

from quartet.errors import ConfigError
from quartet.telemetry.activities import ACTIVITIES
from quartet.telemetry.metrics import METRICS, declare, declared, described, of_parts
from tools.metrics_page import metrics_page

SUFFIXES = {
    "seconds": ("_seconds",),
    "tokens/s": ("_tokens_per_second",),
    "requests/s": ("_requests_per_second", "requests_per_second"),
    "ms/s": ("_ms_per_second",),
    "ms": ("_ms",),
    "nats": ("_nats",),
    "tokens": ("_tokens",),
    "versions": ("_versions", "version"),
}
"""How the name of a metric with this unit ends."""


def test_the_page_is_the_declarations() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == metrics_page(), "run: python tools/metrics_page.py > docs/metrics.md"


@pytest.mark.parametrize("metric", [*METRICS.values(), *of_parts().values()], ids=lambda metric: metric.name)
def test_names_are_area_and_thing_with_its_unit(metric) -> None:
    assert re.fullmatch(r"[a-z]+/[a-z][a-z0-9_]*", metric.name)
    assert metric.meaning and not metric.meaning.endswith(".") and "|" not in metric.meaning
    if metric.unit in SUFFIXES:
        assert metric.name.endswith(SUFFIXES[metric.unit])


def test_a_declaration_with_two_meanings_is_refused() -> None:
    declare("worker", "rollout", ("turns", "turns", METRICS["rollout/turns"].meaning))
    with pytest.raises(ConfigError, match="declared twice"):
        declare("worker", "rollout", ("turns", "turns", "something else"))


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'train/gradient_norm'\?"):
        declared("train/grad_norm")


def test_metric_of_a_part_is_declared_in_its_own_file():
    assert not set(of_parts()) & set(METRICS)
    clipped = described("train/clip_fraction")
    assert (clipped.unit, clipped.module) == ("1", "trainer") and declared(clipped.name) == clipped


def test_colours_tell_activities_apart() -> None:
    working = [activity for activity in ACTIVITIES.values() if not activity.encloses]
    assert all(re.fullmatch("#[0-9a-f]{6}", activity.colour) for activity in working)
    assert len({a.colour for a in working if a.name in ("generate", "step", "wait", "update", "swap", "append")}) == 6
