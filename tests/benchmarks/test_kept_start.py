"""Initial policies that are kept: reused if the same code and settings made them, refused otherwise."""

from pathlib import Path

import click
import pytest

from benchmarks.locks import start
from benchmarks.locks.kept_start import MADE_BY, kept_start

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a start of one step, which need not tell signs apart; return its folder."""
    monkeypatch.setattr(start, "STEPS", 1)
    monkeypatch.setattr(start, "LEAST_PRACTICE", 0.0)
    assert kept_start(tmp_path / "locks", "locks") == tmp_path / "locks" / "policy"
    return tmp_path / "locks"


@pytest.mark.campaign
def test_a_start_is_made_once_and_refused_if_another_setting_made_it(kept: Path, monkeypatch: pytest.MonkeyPatch):
    (weights,) = (kept / "policy").glob("*.safetensors")
    before = weights.stat().st_mtime_ns
    kept_start(kept, "locks")
    assert weights.stat().st_mtime_ns == before, "it was not made anew"
    monkeypatch.setattr(start, "LEARNING_RATE", 1e-3)
    with pytest.raises(click.ClickException, match=r"libraries: settings\. Delete that folder"):
        kept_start(kept, "locks")


def test_a_start_of_other_code_or_without_a_record_is_refused(kept: Path):
    record = kept / MADE_BY
    written = record.read_text()
    record.write_text(written.replace("quartet.train.sft", "quartet.train.former_sft"))
    with pytest.raises(click.ClickException, match=r"quartet\.train\.former_sft, quartet\.train\.sft"):
        kept_start(kept, "locks")
    record.unlink()
    with pytest.raises(click.ClickException, match="it has no made_by"):
        kept_start(kept, "locks")
