"""Raw results: the commit that they record, with Git history and in a copy without it."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import raw_results
from benchmarks.raw_results import COMMIT_VARIABLE, current_commit


@pytest.fixture(autouse=True)
def _read_again():
    current_commit.cache_clear()
    yield
    current_commit.cache_clear()


def test_a_copy_without_history_has_the_commit_that_is_named(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path / "benchmarks" / "results")
    monkeypatch.setenv(COMMIT_VARIABLE, "0123456789ab")
    assert current_commit() == "0123456789ab"


def test_a_copy_without_history_and_name_has_an_unknown_commit(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path / "benchmarks" / "results")
    monkeypatch.delenv(COMMIT_VARIABLE, raising=False)
    assert current_commit() == "unknown"


def test_git_history_is_believed_before_the_name(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path / "benchmarks" / "results")
    monkeypatch.setenv(COMMIT_VARIABLE, "0123456789ab")
    author = ["-c", "user.name=Q", "-c", "user.email=q@example.org"]
    for command in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    )
    assert current_commit() == head.stdout.strip()


def test_history_that_git_cannot_read_is_not_replaced_by_the_name(monkeypatch, tmp_path: Path):
    """As with a folder of another user, where Git reports dubious ownership."""
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path / "benchmarks" / "results")
    monkeypatch.setenv(COMMIT_VARIABLE, "0123456789ab")
    (tmp_path / ".git").mkdir()
    assert current_commit() == "unknown"
