"""The benchmark of the ledger runs, at a size at which its figures mean nothing."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.ledger import main

SMALL = ("--databases", "sqlite", "--sizes", "512", "--cycles", "2", "--json")


def figures_of(*options: str) -> dict[str, dict[str, float]]:
    done = CliRunner().invoke(main, [*SMALL, *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.output.splitlines()[-1])["sqlite"]


@pytest.mark.slow
@pytest.mark.campaign
def test_every_figure_is_measured() -> None:
    figures = figures_of("--live", "0,16", "--appends", "0", "--claims", "0")
    assert all(set(by_size) == {"512", "512+16"} for by_size in figures.values())
    figures |= figures_of("--appends", "16", "--claims", "0", "--workers", "2")
    assert {"tick_ms_p50", "worker_claim_ms_p50", "append_ms_p50", "appends_per_second"} <= set(figures)
    assert all(value >= 0 for by_size in figures.values() for value in by_size.values())


def test_unfinished_rollouts_are_not_counted_as_appends() -> None:
    done = CliRunner().invoke(main, [*SMALL, "--live", "16"])
    assert done.exit_code == 2 and "--appends 0 --claims 0" in done.output
