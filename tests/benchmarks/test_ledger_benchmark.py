"""The benchmark of the ledger runs, at a size at which its figures mean nothing."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.ledger import main


@pytest.mark.slow
def test_every_figure_is_measured() -> None:
    sizes = ["--databases", "sqlite", "--sizes", "512", "--live", "0,16", "--cycles", "2"]
    done = CliRunner().invoke(main, [*sizes, "--appends", "16", "--claims", "0", "--workers", "2", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output.splitlines()[-1])["sqlite"]
    assert {"tick_ms_p50", "worker_claim_ms_p50", "append_ms_p50", "appends_per_second"} <= set(figures)
    assert all(set(by_size) == {"512", "512+16"} for by_size in figures.values())
    assert all(value >= 0 for by_size in figures.values() for value in by_size.values())
