"""A command that a test runs in its own process leaves no state for the next test."""

import os
import sys
from pathlib import Path

import torch

from quartet.ledger.database.location import TRUSTED, trust_server
from tests.command import restored_process


def test_environment_threads_and_local_modules_are_restored(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "left_behind.py").touch()
    monkeypatch.setenv("NAMED_BEFORE", "1")
    environment, threads = dict(os.environ), torch.get_num_threads()
    with restored_process(tmp_path):
        trust_server("postgresql://host/runs")
        del os.environ["NAMED_BEFORE"]
        torch.set_num_threads(threads + 1)
        __import__("left_behind")
        assert TRUSTED in os.environ
    assert dict(os.environ) == environment
    assert torch.get_num_threads() == threads
    assert "left_behind" not in sys.modules
