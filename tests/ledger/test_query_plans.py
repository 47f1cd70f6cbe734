"""Ticks, claims and appends read no table as a whole, and read as much in a large run as in a small one."""

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.bulk_load import load, queue_evaluation
from benchmarks.database_work import Work, explained_url, recorded
from benchmarks.ledger_cycle import cycle, managed
from quartet.ledger import Ledger
from quartet.ledger.schema import pool, rollouts
from quartet.report.totals import run_totals
from tests.ledger.samples import on_sqlite

SMALL, LARGE = 10_240, 20_480
"""Numbers of rows. In the small run, too, control finds as many groups and successes of a family as it ever reads."""

MORE_PAGES = 8
"""Pages that a statement may read more of in the large run: an index with twice the entries may be a level deeper."""


@pytest.fixture(autouse=True)
def sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every tick check the disk budget, and not one in ten seconds."""
    monkeypatch.setattr("quartet.manager.manager.SWEEP_SECONDS", 0.0)


@on_sqlite
def test_totals_take_time_in_proportion_to_the_run(tmp_path, url):
    instructions = []
    for size in (2_000, 4_000):
        with recorded() as work, closing(Ledger.create(tmp_path / str(size), url=url)) as ledger:
            ledger.policies.register_initial("policies/v000000")
            load(ledger, size, record_bytes=16)
            work.begin()
            assert run_totals(ledger).lost == 0
            instructions.append(work.instructions)
    assert instructions[1] < 2.5 * instructions[0]


@on_sqlite
def test_old_records_are_dropped_without_a_scan_of_the_success_pool(tmp_path, url):
    """Each scan would be one more for each row of a page, inside a transaction that all writers wait for."""
    with recorded() as work, closing(Ledger.create(tmp_path / "run", url=url)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        load(ledger, 1_000, record_bytes=16)
        with ledger.db.write() as connection:
            entries = sa.select(sa.literal("task"), rollouts.c.id, sa.false())
            connection.execute(sa.insert(pool).from_select(["task_key", "rollout_id", "outdated"], entries))
        work.begin()
        old = {"created_before": ledger.db.clock() + 1, "version_below": None}
        assert ledger.disk.drop_records(0, 500, up_to=1_000, checkpoint_step=10**6, **old)[1] == 500
        ledger.disk.drop_pictures(500, checkpoint_step=10**6)
        assert not [one.text for one in work.statements if "pool" in one.scanned]


def work_of_a_cycle(run_dir: Path, url: str, *, trained: int, live: int) -> Work:
    """Return the work of claim, appends and tick in a run with this many trained and unfinished rollouts."""
    with recorded() as work:
        ledger = Ledger.create(run_dir, url=explained_url(url) if url else "")
        ledger.policies.register_initial("policies/v000000")
        load(ledger, trained, record_bytes=16)
        if live:
            queue_evaluation(ledger, live)
        with managed(ledger) as manager:
            for _ in range(3):  # the first ticks admit groups
                cycle(ledger, manager)
            work.begin()
            cycle(ledger, manager)
        done = Work(statements=work.statements, instructions=work.instructions)
        ledger.close()
    return done


@pytest.mark.slow
@pytest.mark.parametrize("live", [0, SMALL], ids=["trained", "live"])
def test_no_table_is_read_as_a_whole(tmp_path, url, live):
    work = work_of_a_cycle(tmp_path / "run", url, trained=SMALL, live=live)
    assert len(work.statements) > 50
    assert not work.scans, "\n".join(f"{one.scanned} {one.text}" for one in work.scans)


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True], ids=["trained", "live"])
def test_a_tick_reads_as_much_in_a_large_run(tmp_path, url, live):
    sizes = [{"trained": SMALL, "live": size} if live else {"trained": size, "live": 0} for size in (SMALL, LARGE)]
    small, large = (work_of_a_cycle(tmp_path / f"run-{number}", url, **size) for number, size in enumerate(sizes))
    if url:
        assert large.rows <= 1.1 * small.rows
        before = small.most_pages()
        more = {text: pages - before[text] for text, pages in large.most_pages().items() if text in before}
        assert max(more.values()) <= MORE_PAGES, max(more, key=lambda text: more[text])
    else:
        assert large.instructions <= 1.1 * small.instructions
