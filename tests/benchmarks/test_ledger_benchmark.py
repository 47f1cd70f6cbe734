"""The benchmark of the ledger runs, at a size at which its figures mean nothing."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.ledger import main


@pytest.mark.slow
def test_every_figure_is_measured() -> None:
    sizes = ["--databases", "sqlite", "--sizes", "1024", "--live", "0,64", "--cycles", "3"]
    done = CliRunner().invoke(main, [*sizes, "--appends", "32", "--claims", "2", "--workers", "2", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output.splitlines()[-1])["sqlite"]
    assert {"tick_ms_p50", "worker_claim_ms_p50", "append_ms_p50", "claim_ms_p50", "appends_per_second"} <= set(figures)
    assert all(set(by_size) == {"1024", "1024+64"} for by_size in figures.values())
    assert all(value > 0 for by_size in figures.values() for value in by_size.values())
