"""Shared fixtures."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.bandit import make_bandit_policy

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def bandit_policy(tmp_path_factory) -> Path:
    """A policy that pulls either arm about equally often: it speaks the grammar and has everything else to learn."""
    return make_bandit_policy(tmp_path_factory.mktemp("bandit-policy"))
