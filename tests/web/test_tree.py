"""The tree of a group: places of rows and forks, credit of its edges, and the page that shows it."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from quartet.web.app import build_app
from quartet.web.queries.rollout import RolloutFacts
from quartet.web.tree import PITCH, tree_of
from tests.web.conftest import ask
from tests.web.recorded import Recorder, record, trajectory


def sibling(number: int, turns: int | None, parent: int | None = None, call: int | None = None, status="completed"):
    return SimpleNamespace(id=number, turns=turns, parent_id=parent, parent_call=call, status=status)


def tree(*siblings: SimpleNamespace, credit: dict[int, dict[int, float]] | None = None):
    nothing = dict.fromkeys(("rollout", "group"))
    empty = {name: [] for name in ("attempts", "parts", "joined", "uses", "policies")}
    return tree_of(RolloutFacts(siblings=list(siblings), **nothing, **empty), credit or {})


def test_later_forks_are_nearer_to_their_parent_so_no_line_crosses_a_cell():
    drawn = tree(sibling(1, 4), sibling(2, 4, 1, 0), sibling(3, 4, 1, 2), sibling(4, 4, 3, 2), sibling(5, 2))
    assert [row.rollout.id for row in drawn.rows] == [1, 3, 4, 2, 5]
    assert [row.y for row in drawn.rows] == [PITCH * (n + 0.5) for n in range(5)]
    at = {row.rollout.id: row.y for row in drawn.rows}
    cells = [(cell.x, row.y) for row in drawn.rows for cell in row.cells]
    forks = [row for row in drawn.rows if row.fork]
    assert len(forks) == 3
    for row in forks:
        between = [x for x, y in cells if at[row.rollout.parent_id] < y < row.y]
        assert not [x for x in between if x < row.x_start < x + drawn.cell_width]


def test_a_forked_rollout_has_cells_only_for_calls_of_its_own():
    parent, child = tree(sibling(1, 3), sibling(2, 4, 1, 1), credit={2: {2: -0.5, 3: 2.0}}).rows
    assert [cell.number for cell in parent.cells] == [1, 2, 3] and parent.num_borrowed == 0
    assert [(cell.number, cell.advantage) for cell in child.cells] == [(3, -0.5), (4, 2.0)]
    assert [cell.tone for cell in child.cells] == ["1", "4"] and {cell.tone for cell in parent.cells} == {""}


def test_a_cancelled_fork_is_pruned_and_ends_at_the_fork():
    row = tree(sibling(1, 3), sibling(2, None, 1, 1, status="cancelled")).rows[1]
    assert row.pruned and not row.cells and row.x_end == row.x_start


@pytest.fixture
def trained_tree(tmp_path):
    """A run whose group of two rollouts has a third that was forked after the first call; all were trained."""
    run = Recorder(tmp_path / "run")
    leases = run.open_group("left", 2)
    first = trajectory(leases[0].task, 1.0)
    (child_id,) = run.ledger.forks.add(leases[0], first.calls, 0, 1, 8)
    leases += run.ledger.rollouts.claim("w", 1, 60)
    for lease, reward in zip(leases, (1.0, 0.0, 0.0), strict=True):
        run.ledger.trajectories.append(lease, trajectory(lease.task, reward), 3)
    ids = [lease.rollout_id for lease in leases]
    run.ledger.groups.close(leases[0].group_id)
    run.ledger.groups.make_trainable(leases[0].group_id, ids, 2)
    run.train()
    with closing(run.ledger):
        yield tmp_path / "run", ids[0], child_id


async def test_the_page_draws_the_tree_with_credit(trained_tree):
    run_dir, parent_id, child_id = trained_tree
    async with ask(build_app([run_dir])) as client:
        page = (await client.get(f"/runs/run/rollouts/{parent_id}")).text
    assert "Tree of the group" in page and f"1 call shared with rollout {parent_id}" in page
    assert f"rollout {parent_id}, call 1: advantage 0.12" in page, "the mean of 0.5 and -0.25"
    assert f"rollout {child_id}, call 2: not trained" in page and f"rollout {child_id}, call 1:" not in page


async def test_a_group_without_forks_has_no_tree(tmp_path):
    record(tmp_path / "run").close()
    async with ask(build_app([tmp_path / "run"])) as client:
        assert "Tree of the group" not in (await client.get("/runs/run/rollouts/1")).text
