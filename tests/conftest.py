"""Shared fixtures."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.bandit import make_bandit_policy

# How long an example takes says how busy the machine is, and nothing about the code. The same examples in every run, as
# hypothesis itself does in CI: a failure is of the change at hand. `--hypothesis-profile explore` draws new ones.
untimed: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **untimed)
settings.register_profile("explore", **untimed)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def bandit_policy(tmp_path_factory) -> Path:
    """A policy that pulls either arm about equally often: it speaks the grammar and has everything else to learn."""
    return make_bandit_policy(tmp_path_factory.mktemp("bandit-policy"))
