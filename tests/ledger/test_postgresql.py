"""A ledger on a server: where it lies, who waits for whom, and what a person reads when it cannot be reached."""

import logging
import socket
import threading
import time
from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import exc

from benchmarks.postgresql_server import frozen_server
from quartet.config import Recipe
from quartet.errors import LedgerError, LedgerUnreachableError
from quartet.ledger import Ledger
from quartet.ledger.database import drop_database, find_database, has_database, postgresql
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.ledger.database.prepared import Prepared
from quartet.ledger.schema import groups
from quartet.report.totals import run_totals
from quartet.types import RolloutLease
from tests.ledger.samples import finish, plan, recipe, saw, trainable_group
from tests.postgresql import Proxy, needs_postgresql, server_url

pytestmark = needs_postgresql


@pytest.fixture
def ledger(tmp_path, clock):
    ledger = Ledger.create(tmp_path / "run", clock=clock, url=server_url())
    ledger.policies.register_initial("policies/v000000")
    yield ledger
    ledger.close()


def test_the_run_knows_its_ledger(ledger, tmp_path):
    trainable_group(ledger)
    other = Ledger.create(tmp_path / "other" / "run", url=server_url())  # the same name, elsewhere
    assert run_totals(other).groups == {}
    again = Ledger.open(tmp_path / "run")
    assert run_totals(again) == run_totals(ledger) and run_totals(again).groups == {"trainable": 1}
    assert not (tmp_path / "run" / "ledger.sqlite").exists()
    again.close()
    other.close()


def test_a_group_whose_row_was_locked_during_a_claim_gets_its_deadline_later(ledger, clock):
    group_id = ledger.groups.admit(plan(rollouts=1))
    with ledger.db.write_beside() as connection:  # as a transaction that ends a rollout of the group
        connection.execute(sa.select(groups.c.id).where(groups.c.id == group_id).with_for_update())
        claimed: list[RolloutLease] = []
        claim = threading.Thread(target=lambda: claimed.extend(ledger.rollouts.claim("w", 1, 1000)))
        claim.start()
        claim.join(10)
        ledger.rollouts.begin_missed_groups()  # waits for nobody, and leaves the locked row to the next tick
    assert len(claimed) == 1 and ledger.groups.closable(0) == []
    ledger.rollouts.begin_missed_groups()
    assert ledger.groups.closable(0) == [group_id]


def test_a_fresh_start_drops_the_old_schema(ledger, tmp_path):
    ledger.close()
    old = find_database(tmp_path / "run")
    drop_database(tmp_path / "run")
    assert not has_database(tmp_path / "run")
    with pytest.raises(LedgerError, match="has no schema"):
        old.check()
    Ledger.create(tmp_path / "run", url=server_url()).close()


@pytest.mark.parametrize(("options", "compiled"), [("", "off"), ("-cjit=on", "on")])
def test_queries_are_not_compiled_unless_the_url_says_so(tmp_path, options, compiled):
    url = sa.make_url(server_url()).update_query_dict({"options": options} if options else {})
    with closing(Ledger.create(tmp_path / "run", url=url.render_as_string())) as ledger, ledger.read() as connection:
        assert connection.exec_driver_sql("SHOW jit").scalar_one() == compiled


def test_the_threads_of_a_process_share_a_bounded_number_of_connections(ledger):
    together = threading.Barrier(3 * postgresql.MOST_CONNECTIONS)
    backends: list[int] = []

    def read() -> None:
        together.wait()
        for _ in range(20):
            with ledger.read() as connection:
                backends.append(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    threads = [threading.Thread(target=read) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(backends) == 20 * together.parties and len({*backends}) == postgresql.MOST_CONNECTIONS


def test_a_thread_that_gets_no_connection_says_so(tmp_path, patience):
    patience.seconds = 0.5
    ledger = Ledger.create(tmp_path / "busy", url=server_url())
    with ExitStack() as stack, pytest.raises(LedgerUnreachableError, match="all 4 connections of this process"):
        for _ in range(postgresql.MOST_CONNECTIONS + 1):
            stack.enter_context(ledger.read())
    ledger.close()


def test_claims_skip_what_another_worker_is_claiming(ledger):
    """A transaction that holds the first two rollouts does not hold up who wants two."""
    ledger.groups.admit(plan(rollouts=4))
    claimed: list[int] = []

    def claim() -> None:
        claimed.extend(lease.rollout_id for lease in ledger.rollouts.claim("b", 2, 60))

    with ledger.db.write_beside() as connection:
        connection.exec_driver_sql("SELECT id FROM rollouts ORDER BY id LIMIT 2 FOR UPDATE")
        other = threading.Thread(target=claim)
        other.start()
        other.join(10)
        assert claimed == [3, 4]


def test_reads_of_the_manager_are_stable_until_it_commits(ledger):
    """A worker's append waits for the manager's transaction, and the other way round."""
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    done = threading.Event()

    def append() -> None:
        finish(ledger, lease)
        done.set()

    with ledger.db.write() as connection:
        worker = threading.Thread(target=append)
        worker.start()
        assert not done.wait(0.3)
        assert connection.exec_driver_sql("SELECT count(*) FROM trajectories").scalar() == 0
    worker.join(10)
    assert done.is_set()


def test_a_server_that_is_gone(tmp_path):
    with pytest.raises(LedgerError, match="cannot reach the ledger") as error:
        Ledger.create(tmp_path / "run", url=f"postgresql://quartet@/postgres?host={tmp_path}")
    assert "ledger.url" in str(error.value)


def test_a_server_that_does_not_answer(tmp_path, monkeypatch):
    """It takes the connection and says nothing, as one behind a broken network."""
    monkeypatch.setattr(postgresql, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(LedgerUnreachableError, match="timeout"):
        Ledger.create(tmp_path / "run", url=f"postgresql://quartet@127.0.0.1:{mute.getsockname()[1]}/postgres")


def test_a_connection_that_the_server_ends(ledger):
    with pytest.raises(LedgerError, match="committed data is intact"), ledger.db.write() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    assert ledger.batches.train_step() == 0  # the next call has a new connection


def test_a_connection_that_the_server_ends_under_a_prepared_statement(ledger):
    """Its error comes from the driver and not from SQLAlchemy: it is explained, and the connection not used again."""
    end = Prepared(sa.select(sa.func.pg_terminate_backend(sa.func.pg_backend_pid())))
    with pytest.raises(LedgerError, match="committed data is intact"), ledger.db.write() as connection:
        end(connection)
    trainable_group(ledger)
    assert run_totals(ledger).groups == {"trainable": 1}


def test_half_made(tmp_path):
    Ledger.create(tmp_path / "run", url=server_url()).close()
    database = find_database(tmp_path / "run")
    database.drop()
    database.create()  # type: ignore[attr-defined]
    with pytest.raises(LedgerError, match="no tables"):
        Ledger.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("url", "message"),
    [("mysql://host/db", "postgresql://"), ("postgresql://me:secret@host/db", "PGPASSWORD"), ("ledger.db", "empty")],
)
def test_urls_that_are_refused(url, message):
    with pytest.raises(ValidationError, match=message):
        Recipe.model_validate(recipe().model_dump() | {"ledger": {"url": url}})


@pytest.fixture
def patience():
    yield ANSWER_TIMEOUT
    ANSWER_TIMEOUT.seconds, ANSWER_TIMEOUT.report = 60.0, logging.getLogger(__name__).warning
    ANSWER_TIMEOUT.resume()


def test_a_frozen_server_is_waited_for_as_long_as_the_patience_lasts(ledger, patience):
    """Its kernel still takes what is sent, so that no time-out of TCP fires."""
    patience.seconds = 1.0
    ledger.batches.train_step()
    with (
        frozen_server(server_url()),
        pytest.raises(LedgerUnreachableError, match=r"postgresql://.*gave no answer for 1 s"),
    ):
        ledger.batches.train_step()
    assert ledger.batches.train_step() == 0  # on a new connection


def test_a_call_goes_on_when_the_server_is_thawed(ledger, patience, monkeypatch):
    monkeypatch.setattr("quartet.ledger.database.answer_timeout.EXPLAIN_AFTER_SECONDS", 0.2)
    reports: list[str] = []
    patience.report = reports.append
    call = threading.Thread(target=trainable_group, args=[ledger])
    with frozen_server(server_url()):
        call.start()
        while not reports:
            time.sleep(0.01)
    call.join(60)
    assert run_totals(ledger).groups == {"trainable": 1}
    waits, answers = reports
    assert "waiting for the database postgresql://quartet@" in waits and "answers again" in answers


def test_a_process_that_stops_waits_no_longer_for_a_frozen_server(ledger, patience):
    ledger.batches.train_step()
    begun, timer = time.monotonic(), threading.Timer(0.3, patience.stop)
    with frozen_server(server_url()):
        timer.start()
        with pytest.raises(LedgerUnreachableError, match="gave no answer for 2 s"):
            ledger.batches.train_step()
        with pytest.raises(LedgerUnreachableError, match="asked to stop"):
            ledger.batches.train_step()
    assert time.monotonic() - begun < patience.seconds


@pytest.mark.parametrize("call", ["train_step", "stop_claims"])
def test_a_partition_without_a_reset_is_noticed(tmp_path, patience, call):
    """What is sent arrives nowhere, and nothing comes back."""
    patience.seconds = 1.0
    with Proxy(server_url()) as proxy, closing(Ledger.create(tmp_path / "run", url=proxy.url)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        with proxy.silence(), pytest.raises(LedgerUnreachableError, match="gave no answer for 1 s"):
            getattr(ledger.batches, call)()
        assert ledger.batches.train_step() == 0


def test_a_process_that_was_stopped_inside_a_transaction_does_not_hold_the_others_up(ledger, patience):
    """The server ends its connection, so that the lock is free again."""
    patience.seconds = 4.0
    with pytest.raises(LedgerUnreachableError), ledger.db.write() as connection:
        other = threading.Thread(target=trainable_group, args=[ledger])
        other.start()
        other.join(60)
        connection.exec_driver_sql("SELECT 1")
    assert run_totals(ledger).groups == {"trainable": 1}


def test_a_lock_that_is_not_released_is_an_error_that_names_the_database(ledger, patience):
    patience.seconds = 1.0
    with (
        ledger.db.write() as connection,
        pytest.raises(LedgerUnreachableError, match=r"postgresql://.*lock timeout"),
    ):
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        ledger.policies.register_initial("policies/v000000")


def test_errors_and_reports_hold_no_password(tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, "CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(LedgerUnreachableError) as error:
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        Ledger.create(tmp_path / "run", url=f"postgresql://me:secret@{where}/postgres?password=hidden")
    assert where in str(error.value) and "secret" not in str(error.value) and "hidden" not in str(error.value)


def test_workers_that_saw_the_same_pictures_in_another_order_store_them_without_deadlock(ledger):
    """Each new picture is locked until the commit of the transaction that stored it first."""
    ledger.groups.admit(plan(rollouts=40))
    leases, failures = ledger.rollouts.claim("w", 40, 600), []
    together = threading.Barrier(2)

    def append(forwards: bool) -> None:
        for number in range(20):
            shown = [b"picture %d of %d" % (place, number) for place in range(12)]
            shown, lease = (shown, leases[2 * number]) if forwards else (shown[::-1], leases[2 * number + 1])
            together.wait(30)
            try:
                ledger.trajectories.append(lease, saw(lease, *shown), 3)
            except (exc.SQLAlchemyError, LedgerError) as error:
                failures.append(error)

    workers = [threading.Thread(target=append, args=[forwards]) for forwards in (True, False)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert run_totals(ledger).train_rollouts == 40
