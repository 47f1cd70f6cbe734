"""Which role each change notifies. A wait here would outlast its test, so that only a notification can end it."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quartet.ledger.notifications import Notifier
from quartet.types import Status
from tests.ledger.samples import finish, plan, spoil, trainable_group, trajectory

FOR_EVER_SECONDS = 10_000.0
LISTENER = """
import sys, time
from pathlib import Path
from quartet.ledger.notifications import Notifier
subscription = Notifier(Path(sys.argv[1]), 1.0).subscribe("worker")
print("listening", flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.timeout(60)
"""A notification that is lost is a wait that does not end: that is how these tests fail."""


@pytest.fixture
def notifier(tmp_path) -> Notifier:
    return Notifier(tmp_path / "notifications", FOR_EVER_SECONDS)


async def test_notification_ends_the_wait(notifier):
    with notifier.subscribe("worker") as subscription:
        wait = asyncio.create_task(subscription.wait())
        await asyncio.sleep(0.05)
        assert not wait.done()
        notifier.notify("manager")
        await asyncio.sleep(0.05)
        assert not wait.done()
        notifier.notify("worker")
        await wait


async def test_notification_before_the_wait_is_delivered_once(notifier):
    with notifier.subscribe("worker") as subscription:
        notifier.notify("worker")
        notifier.notify("worker")
        await subscription.wait()
        again = asyncio.create_task(subscription.wait())
        await asyncio.sleep(0.05)
        assert not again.done()
        notifier.notify("worker")
        await again


async def test_stop_event_ends_the_wait(notifier):
    stop = asyncio.Event()
    with notifier.subscribe("worker") as subscription:
        wait = asyncio.create_task(subscription.wait(stop))
        await asyncio.sleep(0.05)
        stop.set()
        await wait


async def test_listener_polls_without_a_notification(tmp_path):
    with Notifier(tmp_path, 0.01).subscribe("worker") as subscription:
        await subscription.wait()


def test_notifying_without_a_listener_does_nothing(notifier, caplog):
    notifier.notify("worker")
    notifier.subscribe("worker").__exit__(None, None, None)
    notifier.notify("worker")
    assert not caplog.records


def test_failed_notification_is_logged_and_raises_nothing(notifier, tmp_path, caplog):
    (tmp_path / "notifications" / "worker").mkdir(parents=True)
    notifier.notify("worker")
    assert "cannot notify" in caplog.text


async def test_listener_polls_where_no_pipe_can_be_made(notifier, tmp_path, caplog):
    (tmp_path / "notifications" / "worker").mkdir(parents=True)
    with notifier.subscribe("worker") as subscription:
        await subscription.wait()
        await subscription.wait()
    assert len(caplog.records) == 1


async def test_more_notifications_than_the_pipe_holds_do_not_block(notifier):
    with notifier.subscribe("worker") as subscription:
        for _ in range(70_000):
            notifier.notify("worker")
        await subscription.wait()


def kill_a_listener(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LISTENER, str(tmp_path / "notifications")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout and process.stdout.readline() == "listening\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
async def test_next_listener_is_notified_after_a_killed_one(notifier, tmp_path):
    kill_a_listener(tmp_path)
    assert (tmp_path / "notifications" / "worker").is_fifo()
    notifier.notify("worker")  # without a listener
    with notifier.subscribe("worker") as subscription:
        wait = asyncio.create_task(subscription.wait())
        await asyncio.sleep(0.05)
        assert not wait.done()
        notifier.notify("worker")
        await wait


async def test_listener_that_stops_leaves_other_listeners_subscribed(notifier):
    with notifier.subscribe("worker") as subscription:
        with notifier.subscribe("worker"):
            pass
        notifier.notify("worker")
        await subscription.wait()


def nothing(ledger):
    return None


def leased(ledger):
    ledger.groups.admit(plan(rollouts=1))
    return ledger.rollouts.claim("w", 1, 60)[0]


def closed(ledger):
    lease = leased(ledger)
    finish(ledger, lease)
    ledger.groups.close(lease.group_id)
    return lease


def claimed(ledger):
    trainable_group(ledger)
    return ledger.batches.claim("t", 1, 8, "mask", 60)


def trained(ledger):
    return ledger.batches.commit(claimed(ledger), "policies/v000001", {})


def over_lag(ledger):
    """One version later with a bound of 0, a group that waits is dropped."""
    batch = claimed(ledger)
    trainable_group(ledger)
    ledger.batches.commit(batch, "policies/v000001", {})


def recalled(ledger, lease):
    ledger.trajectories.recycle(lease, trajectory(lease.task, status=Status.CANCELLED), 1)


def damaged(ledger):
    trainable_group(ledger)
    spoil(ledger, 1)


@pytest.mark.parametrize(
    ("given", "deed", "role"),
    [
        (nothing, lambda ledger, _: ledger.groups.admit(plan()), "worker"),
        (nothing, lambda ledger, _: ledger.evaluations.admit("tag", [plan()]), "worker"),
        (leased, lambda ledger, lease: finish(ledger, lease, status=Status.ERROR_ENV), "worker"),
        (leased, lambda ledger, lease: ledger.rollouts.release(lease), "worker"),
        (leased, lambda ledger, _: ledger.rollouts.requeue_all(), "worker"),
        (leased, finish, "manager"),
        (closed, lambda ledger, lease: ledger.groups.make_trainable(lease.group_id, [lease.rollout_id], 1), "trainer"),
        (closed, lambda ledger, lease: ledger.groups.drop(lease.group_id, "broken"), "trainer"),
        (closed, lambda ledger, lease: ledger.groups.make_trainable(lease.group_id, [lease.rollout_id], 1), "worker"),
        (closed, lambda ledger, lease: ledger.groups.make_trainable(lease.group_id, [lease.rollout_id], 1), "engine"),
        (closed, lambda ledger, lease: ledger.groups.drop(lease.group_id, "broken"), "engine"),
        (leased, lambda ledger, lease: ledger.groups.close(lease.group_id), "worker"),
        (leased, recalled, "worker"),
        (leased, recalled, "manager"),
        (leased, recalled, "engine"),
        (nothing, lambda ledger, _: ledger.policies.mark_settled(0, serving=0), "manager"),
        (nothing, lambda ledger, _: ledger.policies.mark_settled(0, serving=0), "worker"),
        (nothing, lambda ledger, _: ledger.enter_phase("training"), "manager"),
        (claimed, lambda ledger, batch: ledger.batches.commit(batch, "policies/v000001", {}), "manager"),
        (claimed, lambda ledger, batch: ledger.batches.commit(batch, "policies/v000001", {}), "engine"),
        (over_lag, lambda ledger, _: ledger.batches.claim("t", 1, 0, "mask", 60), "manager"),
        (damaged, lambda ledger, _: ledger.batches.claim("t", 1, 8, "mask", 60), "manager"),
        (trained, lambda ledger, _: ledger.batches.roll_back(0), "manager"),
        (trained, lambda ledger, _: ledger.batches.roll_back(0), "engine"),
    ],
)
async def test_commit_notifies_the_role_that_waits_for_it(ledger, given, deed, role):
    before = given(ledger)
    with Notifier(ledger.run_dir / "notifications", FOR_EVER_SECONDS).subscribe(role) as subscription:
        deed(ledger, before)
        await subscription.wait()


def test_expired_batch_notifies_the_trainer(ledger, clock):
    claimed(ledger)
    clock.now += 61
    with Notifier(ledger.run_dir / "notifications", FOR_EVER_SECONDS).subscribe("trainer") as subscription:
        ledger.batches.expire()
        asyncio.run(subscription.wait())
