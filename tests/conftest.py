"""Shared fixtures."""

from pathlib import Path

import pytest

from benchmarks.bandit import make_bandit_policy


@pytest.fixture(scope="session")
def bandit_policy(tmp_path_factory) -> Path:
    """A policy that pulls either arm about equally often: it speaks the grammar and has everything else to learn."""
    return make_bandit_policy(tmp_path_factory.mktemp("bandit-policy"))
