"""The rounds of a group on the page of its rollouts: which rollouts each has, and its successes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from quartet.types import Root
from quartet.web.queries.rollout import read_rollout
from tests.web.browsing import fits_and_is_accessible, opened, served
from tests.web.recorded import Recorder, record, trajectory


def in_rounds(run_dir: Path) -> Recorder:
    """Two failures, then two guided rollouts, of which one succeeds; it is forked while it runs."""
    run = Recorder(run_dir)
    first = run.open_group("left", 2)
    for lease in first:
        run.ledger.trajectories.append(lease, trajectory(lease.task, 0.0), 3)
    run.ledger.groups.end_round(first[0].group_id, lambda group: [Root(guided=True)] * 2)
    second = run.ledger.rollouts.claim("w", 2, 60)
    run.ledger.forks.add(second[0], trajectory(second[0].task, 1.0).calls, 0, 1, 8)
    second += run.ledger.rollouts.claim("w", 1, 60)
    for lease, reward in zip(second, (1.0, 0.0, 1.0), strict=True):
        run.ledger.trajectories.append(lease, trajectory(lease.task, reward), 3)
    run.ledger.groups.end_round(first[0].group_id, lambda group: [])
    return run


def test_a_round_has_what_was_added_at_one_time_and_the_forks_of_it(tmp_path: Path) -> None:
    run = in_rounds(tmp_path / "run")
    with closing(run.ledger), run.ledger.read() as connection:
        facts = read_rollout(connection, 1)
    assert facts is not None
    found = [(one.number, [row.id for row in one.rows], one.successes, one.countable) for one in facts.rounds]
    assert found == [(1, [1, 2], 0, 2), (2, [3, 4, 5], 2, 3)]
    assert [bool(row.guided) for row in facts.siblings] == [False, False, True, True, False]


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("rounds")
    ledgers = in_rounds(folder / "run").ledger, record(folder / "plain")
    with served(folder / "run", folder / "plain") as server:
        yield server
    for ledger in ledgers:
        ledger.close()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_lists_the_rounds_with_their_successes(address: str, browser: Browser) -> None:
    async with opened(browser, f"{address}/runs/run/rollouts/1") as page:
        first, second = (page.get_by_role("list", name=f"Round {number}") for number in (1, 2))
        await expect(page.get_by_role("heading", name="Round 1")).to_have_text("Round 1: 0 of 2 succeeded")
        await expect(page.get_by_role("heading", name="Round 2")).to_have_text("Round 2: 2 of 3 succeeded")
        await expect(first.get_by_role("link")).to_have_count(2)
        await expect(second.get_by_role("link")).to_have_count(3)
        await expect(second.get_by_text("guided")).to_have_count(2)
        await fits_and_is_accessible(page)


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_a_group_with_one_round_names_none(address: str, browser: Browser) -> None:
    async with opened(browser, f"{address}/runs/plain/rollouts/1") as page:
        await expect(page.get_by_role("heading", name="Its group")).to_be_visible()
        await expect(page.get_by_role("heading", name="Round")).to_have_count(0)
