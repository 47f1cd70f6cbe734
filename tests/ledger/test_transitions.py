"""The guard in the database lets exactly the documented transitions pass."""

from itertools import product
from pathlib import Path

import pytest
from sqlalchemy.exc import DatabaseError

from quartet.ledger import Ledger
from quartet.ledger.transitions import TRANSITIONS, guard
from quartet.types import BatchState, GroupState, RolloutState
from tests.ledger.samples import trainable_group

STATES = {"rollouts": RolloutState, "groups": GroupState, "batches": BatchState}
PAGE = Path(__file__).parents[2] / "docs" / "state-machines.md"


class Possible(Exception):  # noqa: N818
    """The database let it pass; everything is undone."""


@pytest.mark.parametrize("table", STATES)
def test_no_other_transition_is_possible(ledger: Ledger, table: str):
    """Tried on a real row with plain SQL, past every check of the program."""
    trainable_group(ledger)
    batch = ledger.batches.claim("t", 1, 1, "mask", 60)
    assert batch is not None

    def move(before: str, after: str) -> bool:
        try:
            with ledger.db.write() as connection:
                on = f" ON {table}" if connection.dialect.name == "postgresql" else ""
                connection.exec_driver_sql(f"DROP TRIGGER {table}_guard{on}")
                connection.exec_driver_sql(f"UPDATE {table} SET state = '{before}'")
                guard(connection)
                connection.exec_driver_sql(f"UPDATE {table} SET state = '{after}'")
                raise Possible
        except DatabaseError as error:
            assert "illegal transition" in str(error)
            return False
        except Possible:
            return True

    possible = {pair for pair in product(STATES[table], repeat=2) if pair[0] != pair[1] and move(*pair)}
    assert possible == TRANSITIONS[table].keys()
    assert not move(next(iter(STATES[table])), "lost")


@pytest.mark.parametrize("table", STATES)
def test_the_documentation_draws_them(table: str):
    arrows = [f"    {before} --> {after}: {when}" for (before, after), when in TRANSITIONS[table].items()]
    assert "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]) in PAGE.read_text()


@pytest.mark.parametrize("table", STATES)
def test_every_state_can_be_reached_and_only_ends_are_final(table: str):
    first, *others = STATES[table]
    assert {after for _, after in TRANSITIONS[table]} >= set(others)
    final = set(STATES[table]) - {before for before, _ in TRANSITIONS[table]}
    assert final <= {RolloutState.FINISHED, GroupState.DROPPED, BatchState.RELEASED} and first not in final
