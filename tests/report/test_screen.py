"""The terminal screen of several runs, some of which cannot be read."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from quartet.errors import LedgerError
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.screen import show_runs
from tests.ledger.samples import recipe


def new_run(run_dir: Path) -> Ledger:
    ledger = Ledger.create(run_dir)
    ledger.policies.register_initial("policies/v000000")
    (run_dir / "config.toml").write_text(to_toml(recipe()))
    return ledger


def shown(*runs: Path) -> str:
    file = io.StringIO()
    show_runs(runs, Console(file=file, width=300))
    return file.getvalue()


def test_unreadable_runs_are_listed_with_their_reasons_and_hide_no_other(tmp_path):
    sound, newer, torn = (tmp_path / name for name in ("sound", "newer", "torn"))
    new_run(sound).close()
    other = new_run(newer)
    other.set_value("schema_version", 99)
    other.close()
    torn.mkdir()
    (torn / "ledger.sqlite").write_bytes(b"no database" * 1000)
    screen = shown(newer, sound, torn)
    assert f"{newer}: unreadable" in screen and "has schema version 99" in screen
    assert f"{torn}: unreadable" in screen
    assert screen.count("not running") == 1
    with pytest.raises(LedgerError, match="schema version 99"):
        shown(newer)
