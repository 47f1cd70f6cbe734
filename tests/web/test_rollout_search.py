"""Search in the texts of rollouts, two of them beside each other, and what a free-form environment understood."""

import re

import pytest

from quartet.actions.taken import taken_action
from quartet.types import Observation, Purpose, Turn
from quartet.web.app import build_app
from quartet.web.queries import text_search
from quartet.web.queries.selection import Selection
from quartet.web.queries.text_search import search_rollouts
from quartet.web.turn_view import TurnView
from tests.web.conftest import SCRIPT, ask
from tests.web.recorded import Recorder, record


@pytest.fixture
def run(tmp_path):
    run = Recorder(tmp_path / "run")
    for said in ("the Red door", "a blue door", "nothing"):
        run.group("left", [0.0, 1.0], said=said)
    yield run
    run.ledger.close()


def found(run: Recorder, text: str, **fields) -> list[int]:
    with run.ledger.read() as connection:
        page = search_rollouts(connection, run.ledger.store, Selection(**fields), text).page
    return [row.rollout_id for row in page.rows]


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("door", {}, [4, 3, 2, 1]),
        ("RED", {}, [2, 1]),
        ("door", {"success": True}, [4, 2]),
        ("door", {"purpose": Purpose.EVAL}, []),
        ("d.or", {}, []),
        ("click left [1]", {}, [6, 5, 4, 3, 2, 1]),
    ],
)
def test_a_text_is_found_as_it_stands_whatever_its_case(run, text, fields, expected):
    assert found(run, text, **fields) == expected


def test_a_page_reads_a_bounded_number_of_records_and_the_next_one_goes_on(run, monkeypatch):
    monkeypatch.setattr(text_search, "MOST_READ", 3)
    with run.ledger.read() as connection:
        first = search_rollouts(connection, run.ledger.store, Selection(), "red").page
        assert (first.rows, first.examined_all) == ([], False)
        rest = search_rollouts(connection, run.ledger.store, Selection(), "red", first.older_than).page
    assert [row.rollout_id for row in rest.rows] == [2, 1]


def test_a_page_reads_a_bounded_number_of_bytes(run, monkeypatch):
    monkeypatch.setattr(text_search, "MOST_READ_BYTES", 1)
    with run.ledger.read() as connection:
        first = search_rollouts(connection, run.ledger.store, Selection(), "red")
        assert (first.read, first.page.rows, first.page.examined_all) == (1, [], False)
        second = search_rollouts(connection, run.ledger.store, Selection(), "red", first.page.older_than)
    assert (first.page.older_than, second.page.older_than) == (6, 5), "the next page goes on"


def test_full_pages_hold_every_match_once(run):
    listed, older_than = [], None
    with run.ledger.read() as connection:
        while older_than != 0:
            page = search_rollouts(connection, run.ledger.store, Selection(), "door", older_than, rows_per_page=1).page
            listed += [row.rollout_id for row in page.rows]
            older_than = page.older_than or 0
    assert listed == [4, 3, 2, 1]


async def test_the_list_marks_the_passage_as_text(tmp_path):
    ledger = record(tmp_path / "run")
    async with ask(build_app([tmp_path / "run"])) as client:
        page = (await client.get("/runs/run/rollouts", params={"text": "<script>"})).text
        assert "<mark>&lt;script&gt;</mark>" in page and SCRIPT not in page
        assert re.findall(r'rollouts/(\d+)">', page) == ["9", "8"]
        everything = (await client.get("/runs/run/rollouts")).text
    assert re.findall(r'<td class="num"><a href="[^"]*/rollouts/(\d+)', everything)[:3] == ["12", "11", "10"]
    ledger.close()


async def test_two_rollouts_stand_beside_each_other(tmp_path):
    ledger = record(tmp_path / "run")
    async with ask(build_app([tmp_path / "run"])) as client:
        assert '<option value="1">rollout 1</option>' in (await client.get("/runs/run/rollouts/2")).text
        page = (await client.get("/runs/run/rollouts/2/beside?other=1")).text
        assert [page.count(f'aria-label="Turn 1 of rollout {number}"') for number in (2, 1)] == [1, 1]
        hostile = (await client.get("/runs/run/rollouts/8/beside?other=9")).text
        assert SCRIPT not in hostile and "&lt;script&gt;" in hostile
        for query, status in (("", 400), ("?other=x", 400), ("?other=999", 404)):
            assert (await client.get(f"/runs/run/rollouts/2/beside{query}")).status_code == status
        assert (await client.get("/runs/run/rollouts/2/beside?other=11")).status_code == 200, "it runs"
    ledger.close()


@pytest.mark.parametrize(
    ("reward", "solves", "shown"), [(0.0, False, "no valid action"), (1.0, False, ""), (0.0, True, "")]
)
def test_a_rewarded_answer_was_understood_whatever_the_grammar_says(reward, solves, shown):
    action = taken_action("The answer is 42.", "well done")
    seen = Observation(goal="?", text="")
    turn = Turn(observation=seen, call_index=0, response="42", actions=[action], rewards={"task": reward})
    view = TurnView(number=1, observation=turn.observation, page=[], turn=turn, call=None, solves=solves)
    assert view.outcome_of(action) == shown
