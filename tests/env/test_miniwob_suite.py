"""The suite `miniwob-24`: fixed before the first training run."""

import pytest

from quartet import config
from quartet.env import suite_families
from quartet.env.miniwob.suite import SUITES, family
from quartet.errors import ConfigError


def test_the_suite_is_what_was_promised() -> None:
    names = [family.name for family in SUITES["miniwob-24"]]
    demonstrated = [family.name for family in SUITES["miniwob-24"] if family.demonstrated]
    assert (len(names), len(set(names)), len(demonstrated)) == (24, 24, 16)
    assert sum(family.min_actions >= 3 for family in SUITES["miniwob-24"]) >= 10
    assert all(family.max_turns > family.min_actions for family in SUITES["miniwob-24"])
    assert suite_families(config.Env(name="miniwob")) == names


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="click-button"):
        family("miniwob-24", "click-buton")
