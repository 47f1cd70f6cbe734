"""Ledgers of every schema since the fourth, as Quartet made them then: upgraded, with all that they hold."""

import base64
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quartet.errors import LedgerError
from quartet.ledger import Ledger
from quartet.ledger.database import create_database, find_database
from quartet.ledger.schema import SCHEMA_VERSION
from quartet.recipe.file import to_toml
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from quartet.rollout.episode import actions_of
from quartet.types import Outcome
from quartet.web.app import build_app
from quartet.web.queries.rollout import read_rollout
from quartet.web.rollout_view import view_rollout
from quartet.web.viewed_run import ViewedRun
from tests.ledger.conftest import url_of
from tests.ledger.samples import finish, plan, recipe
from tests.postgresql import needs_postgresql
from tests.web.conftest import ask

FIXTURES = Path(__file__).parent / "fixtures"


def rebuild(run_dir: Path, version: int, url: str) -> None:
    """The tables of `version` with its rows; those of schema 4 are the rows of schema 5 that it had."""
    run_dir.mkdir()
    tables = json.loads((FIXTURES / f"ledger_v{version}.json").read_text())["tables"]
    rows = json.loads((FIXTURES / f"ledger_v{max(version, 5)}.json").read_text())["rows"]
    database = create_database(run_dir, "process", url)
    with database.write() as connection:
        for statement in tables[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        for name, content in rows.items():
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            known = [{key: _value(value) for key, value in row.items() if key in table.c} for row in content]
            connection.execute(sa.insert(table), known)
            if connection.dialect.name == "postgresql" and "id" in table.c:
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT max(id) FROM {name}))"
                )
        connection.execute(sa.text(f"UPDATE run SET value = '{version}' WHERE key = 'schema_version'"))
    database.close()


def _value(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) and "base64" in value else value


FORMER = range(4, SCHEMA_VERSION)
DATABASES = [
    *[pytest.param(("sqlite", version), id=f"sqlite-{version}") for version in FORMER],
    *[
        pytest.param(
            ("postgresql", version),
            id=f"postgresql-{version}",
            marks=needs_postgresql if version in (FORMER[0], FORMER[-1]) else [needs_postgresql, pytest.mark.campaign],
        )
        for version in FORMER
    ],
]


def upgrade(database: str, version: int, folder: Path) -> Ledger:
    run_dir = folder / "old"
    rebuild(run_dir, version, url_of(database))
    with pytest.raises(LedgerError, match="quartet ledger upgrade"):
        Ledger.view(run_dir)
    ledger = Ledger.open(run_dir, upgrade=True)
    (event,) = [event for event in ledger.events() if event.kind == "ledger_upgraded"]
    assert event.fields == {"from_version": version, "to_version": SCHEMA_VERSION}
    (run_dir / "config.toml").write_text(to_toml(recipe()))
    return ledger


@pytest.fixture(scope="module", params=DATABASES)
def upgraded(request, tmp_path_factory):
    """A ledger that tests only read."""
    with closing(upgrade(*request.param, tmp_path_factory.mktemp("upgraded"))) as ledger:
        yield ledger


@pytest.fixture(params=DATABASES)
def written(request, tmp_path):
    """A ledger for one test."""
    with closing(upgrade(*request.param, tmp_path)) as ledger:
        yield ledger


def shape(ledger: Ledger) -> dict[str, tuple[set[str], set[tuple[str | None, ...]]]]:
    """By table: its columns, and the columns of each of its indexes and of its primary key."""
    with ledger.read() as connection:
        inspector = sa.inspect(connection)
        return {
            table: (
                {column["name"] for column in inspector.get_columns(table)},
                {tuple(index["column_names"]) for index in inspector.get_indexes(table)}
                | {tuple(inspector.get_pk_constraint(table)["constrained_columns"])},
            )
            for table in inspector.get_table_names()
        }


def test_an_upgraded_ledger_has_the_tables_of_a_new_one(upgraded, request, tmp_path):
    database, _ = request.node.callspec.params["upgraded"]
    with closing(Ledger.create(tmp_path / "new", seed=5, url=url_of(database))) as new:
        assert shape(upgraded) == shape(new)


def damage(ledger: Ledger) -> list[str]:
    """What a check finds, but for the policies' folders, which the fixture does not have."""
    return [finding.what for finding in check_ledger(ledger).findings if finding.kind != "policy_missing"]


def test_what_was_trained_reads_as_it_did(upgraded):
    members = upgraded.groups.load(1).members
    assert [member.trajectory.reward for member in members] == [0.0, 1.0]
    for member in members:
        assert [call.key for call in member.trajectory.calls] == ["0", "1"]
        for call in member.trajectory.calls:
            assert (call.prompt_ids, call.response_ids) == ([7, 8], [1, 2, 3])
            assert (call.response.logprobs, call.response.versions) == ([-0.01, -1.0, -5.0], [0, 0, 0])
        assert actions_of(member.trajectory.turns) == ["click left [1]", "click (3,2)"]
        assert [turn.actions[0].outcome for turn in member.trajectory.turns] == [Outcome.DONE, Outcome.REFUSED]
    assert damage(upgraded) == []
    assert run_totals(upgraded).groups["trained"] == 1
    assert (upgraded.groups.admitted(), upgraded.groups.ahead()) == (2, 1), "one of them is trained"


def test_pictures_are_still_shown(upgraded):
    with find_database(upgraded.run_dir).read() as connection:
        query = "SELECT blob, digest FROM trajectories JOIN pictures ON trajectory_id = id ORDER BY id"
        blob, digest = connection.exec_driver_sql(query).first()
    turns = upgraded.store.load(blob, [digest]).turns
    pictures = [picture for turn in turns for picture in turn.observation.pictures]
    assert len(turns) == len(pictures) == 2 and all(picture.data.startswith(b"\x89PNG") for picture in pictures)


def test_the_viewer_shows_a_trained_rollout(upgraded):
    run = ViewedRun(upgraded.run_dir, "run")
    with run.ledger.read() as connection:
        facts = read_rollout(connection, 2)
        assert facts is not None
        view = view_rollout(run, connection, facts, facts.newest)
    assert view.fate == "was trained on" and len(view.turns) == 2
    run.close()
    call = view.turns[0].call
    assert call is not None and [token.token_id for token in call.tokens] == [1, 2, 3]


async def test_the_viewer_shows_pictures_of_before_schema_6(upgraded):
    with upgraded.read() as connection:
        first = connection.exec_driver_sql("SELECT min(trajectory_id) FROM pictures").scalar()
        of = f"SELECT rollout_id FROM trajectories WHERE id = {first}"
        rollout = connection.exec_driver_sql(of).scalar()
    async with ask(build_app([upgraded.run_dir])) as client:
        page = (await client.get(f"/runs/old/rollouts/{rollout}")).text
        addresses = sorted(set(re.findall(rf"/runs/old/trajectories/{first}/pictures/\d+/\d+", page)))
        assert [address[-4:] for address in addresses] == ["/1/1", "/2/1"]
        for address in addresses:
            answer = await client.get(address)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")


def test_a_recalled_rollout_goes_on_and_counts_are_kept(written):
    (lease,) = written.rollouts.claim("w", 1, 60)
    assert [call.key for call in written.trajectories.load_beginning(lease).calls] == ["0", "1"]
    finish(written, lease, reward=1.0)
    assert damage(written) == []
    written.groups.admit(plan(rollouts=3))
    for lease in written.rollouts.claim("w", 10, 60):
        finish(written, lease)
    assert len(written.groups.ended_rounds()) == 2
    assert damage(written) == []
