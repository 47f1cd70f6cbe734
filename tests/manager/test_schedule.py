"""Schedules and straggler rules: a run ends, loses nothing, and keeps the pace that its schedule promises."""

import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from quartet.ledger import AppendOutcome
from quartet.ledger.database import drop_database
from quartet.ledger.policy_rows import insert_policy
from quartet.ledger.schema import TrajectoryKind, rollouts, trajectories
from quartet.manager.schedule import SCHEDULES
from quartet.registry import build
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from tests.ledger.samples import finish, manager_of, plan, recipe, trainable_group
from tests.ledger.whole_run import Run
from tests.postgresql import needs_postgresql, server_url

MODES = [
    ("rollout_wise", "redundancy"),
    ("rollout_wise", "early_stop"),
    ("task_wise", "none"),
    ("one_step_off", "none"),
    ("one_step_off", "redundancy"),
    ("batch_synchronous", "none"),
    ("batch_synchronous", "early_stop"),
    ("batch_synchronous", "april"),
]

OF_EVERY_KIND = [
    ("rollout_wise", "early_stop"),
    ("task_wise", "none"),
    ("one_step_off", "redundancy"),
    ("batch_synchronous", "april"),
]
"""Every schedule and every rule once."""
EXACT_LAG = {"batch_synchronous": 0, "one_step_off": 1}


def settings_of(mode: str, number: int) -> dict:
    """The same in every run, others for every mode."""
    draw = random.Random(f"{mode} {number}")
    return {
        "max_lag": draw.randint(1, 2),
        "groups_per_batch": draw.randint(1, 3),
        "size": draw.randint(2, 4),
        "sessions": draw.randint(1, 8),
        "max_recycles": draw.choice([None, 0, 1, 4]),
        "seed": draw.randrange(2**32),
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    ("schedule", "rule"),
    [pytest.param(*mode, marks=() if mode in OF_EVERY_KIND else pytest.mark.campaign) for mode in MODES],
)
def test_run_of_each_schedule_reaches_its_last_train_step(schedule, rule, number):
    it_reaches_its_end("", 8 if number else 5, schedule, rule, **settings_of(f"{schedule} {rule}", number))


@needs_postgresql
@pytest.mark.campaign
@pytest.mark.parametrize(("schedule", "rule"), MODES)
def test_run_of_each_schedule_on_postgresql_reaches_its_last_train_step(schedule, rule):
    it_reaches_its_end(server_url(), 4, schedule, rule, **settings_of(f"{schedule} {rule}", 2))


def it_reaches_its_end(url, train_steps, schedule, rule, max_lag, groups_per_batch, size, sessions, max_recycles, seed):
    own = {"april": {"max_recycles": max_recycles}, "early_stop": {"min_share": 0.0}}.get(rule, {})
    settings = recipe(
        env={"sessions": sessions},
        control={"rollouts_per_group": size},
        admission={"max_lag": max_lag, "schedule": schedule},
        straggler={"name": rule} | own,
        train={"groups_per_batch": groups_per_batch, "max_train_steps": train_steps},
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), settings, random.Random(seed), url)
        run.straggler_pace = 0.1
        run.go()
        totals = run_totals(run.ledger)
        assert run.ledger.batches.train_step() == train_steps
        assert (totals.lost, totals.trained_twice) == (0, 0)
        assert all(totals.dropped_by_reason)
        assert check_ledger(run.ledger).findings == []
        nothing_is_recycled_for_ever_nor_lost(run, run.rule.max_recycles)
        assert rule == "april" or not totals.attempts.get("partial", 0)
        if rule != "april" and schedule in EXACT_LAG and not run.rolled_back:
            assert max(run.lags) <= EXACT_LAG[schedule]
        run.ledger.close()
        drop_database(Path(folder) / "run")


def nothing_is_recycled_for_ever_nor_lost(run: Run, max_recycles: int) -> None:
    kept = sa.select(trajectories).where(trajectories.c.kind.in_([TrajectoryKind.FINAL, TrajectoryKind.PARTIAL]))
    with run.ledger.read() as connection:
        recycled = dict(connection.execute(sa.select(rollouts.c.id, rollouts.c.recycled)).all())  # type: ignore[arg-type]
        records = connection.execute(kept.order_by(trajectories.c.id)).all()
    assert all(count <= max_recycles for count in recycled.values())
    partials = Counter(record.rollout_id for record in records if record.kind == TrajectoryKind.PARTIAL)
    assert all(recycled[rollout_id] == count for rollout_id, count in partials.items())
    assert sum(partials.values()) == run.outcomes[AppendOutcome.RECYCLED]
    tokens: Counter[int] = Counter()
    for record in records:
        if record.kind == TrajectoryKind.PARTIAL or record.counted:
            assert record.response_tokens >= tokens[record.rollout_id], "the next attempt has all tokens of this one"
            tokens[record.rollout_id] = record.response_tokens


def settled(ledger) -> None:
    version = ledger.policies.latest().version
    ledger.policies.mark_settled(version, serving=version)


def tick(manager) -> None:
    while manager.tick():
        pass


def claim_batch(ledger, groups=2):
    return ledger.batches.claim("t", groups, 1, "mask", 60)


@pytest.mark.parametrize(
    ("schedule", "groups"), [("rollout_wise", 4), ("task_wise", 2), ("one_step_off", 4), ("batch_synchronous", 2)]
)
def test_how_many_groups_start(ledger, schedule, groups):
    """Batches of two groups of two, four sessions, max_lag 1."""
    settled(ledger)
    with manager_of(recipe(admission={"schedule": schedule}), ledger) as manager:
        tick(manager)
        assert ledger.groups.ahead() == groups


def test_a_group_of_its_own_sessions_starts_when_another_one_has_ended(ledger):
    with manager_of(recipe(admission={"schedule": "task_wise"}), ledger) as manager:
        tick(manager)
        first, _, third, _ = ledger.rollouts.claim("w", 4, 60)
        finish(ledger, first)
        finish(ledger, third)
        tick(manager)
        assert ledger.statistics.queue_sizes().rollouts == {"queued": 0, "leased": 2}, "two sessions are idle"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_when_weights_change(ledger, schedule):
    rule, modes = build(recipe().straggler, recipe()), SCHEDULES[schedule]
    assert modes.may_take_weights(ledger, rule)
    ledger.groups.admit(plan(rollouts=1))
    assert modes.may_take_weights(ledger, rule) == (not modes.between_batches)
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    assert modes.may_take_weights(ledger, rule) == (not modes.between_batches)
    finish(ledger, lease)
    assert modes.may_take_weights(ledger, rule) == (not modes.between_batches), "its group may get another round"
    for group_id in ledger.groups.closable(60):
        ledger.groups.close(group_id)
    assert modes.may_take_weights(ledger, rule)


def test_april_pauses_training_from_a_full_batch_until_its_policy_is_served(ledger):
    settings = recipe(admission={"schedule": "batch_synchronous"}, straggler={"name": "april"})
    rule, schedule = build(settings.straggler, settings), SCHEDULES["batch_synchronous"]
    settled(ledger)
    trainable_group(ledger)
    assert not rule.pauses_training(ledger)
    trainable_group(ledger)
    assert rule.pauses_training(ledger), "two groups are a batch"
    batch = claim_batch(ledger)
    assert rule.pauses_training(ledger)
    ledger.groups.admit(plan(rollouts=1))
    assert ledger.rollouts.claim("w", 1, 60, training=False) == []
    ledger.batches.commit(batch, "p1", {})
    assert rule.pauses_training(ledger)
    assert schedule.may_take_weights(ledger, rule), "a rollout that rests in the queue is not in the way"
    settled(ledger)
    assert not rule.pauses_training(ledger)
    assert not schedule.may_take_weights(ledger, rule)


def test_april_resumes_training_rollouts_when_the_full_batch_is_dropped(ledger):
    """Nobody stored that there was one."""
    settings = recipe(admission={"schedule": "batch_synchronous"}, straggler={"name": "april"})
    rule = build(settings.straggler, settings)
    settled(ledger)
    for _ in range(2):
        trainable_group(ledger, versions=(0,))
    assert rule.pauses_training(ledger)
    for version in (1, 2):
        with ledger.db.write() as connection:
            insert_policy(ledger.db, connection, f"p{version}", train_step=0)
    settled(ledger)
    assert claim_batch(ledger) is None, "both are over the lag"
    assert not rule.pauses_training(ledger)


def test_april_starts_more_groups_than_a_batch_has(ledger):
    april = {"name": "april", "over_provision": 1.5}
    settled(ledger)
    with manager_of(recipe(admission={"schedule": "batch_synchronous"}, straggler=april), ledger) as manager:
        tick(manager)
        assert ledger.groups.ahead() == 3


@pytest.mark.slow
@pytest.mark.parametrize(("part", "look"), [("statistics", "groups_by_state"), ("policies", "latest_is_settled")])
def test_a_train_step_that_ends_between_two_looks_lets_nothing_start(ledger, monkeypatch, part, look):
    """What started then would be sampled from the policy before, with two batches in front of it."""
    settings = recipe(admission={"schedule": "one_step_off"})
    settled(ledger)
    for _ in range(2):
        trainable_group(ledger)
    with manager_of(settings, ledger) as manager:
        tick(manager)
        assert ledger.groups.ahead() == 4
        batch, asked = claim_batch(ledger), getattr(getattr(ledger, part), look)
        assert batch is not None

        def ask_and_commit() -> object:
            answer = asked()
            monkeypatch.undo()
            ledger.batches.commit(batch, "p1", {})
            return answer

        monkeypatch.setattr(getattr(ledger, part), look, ask_and_commit)
        manager.tick()
        assert ledger.groups.ahead() == 2, "the policy is not served yet"
        for lease in ledger.rollouts.claim("w", 4, 60):
            finish(ledger, lease, reward=float(lease.index))
        settled(ledger)
        tick(manager)
        assert ledger.groups.ahead() == 4


def test_a_group_is_not_admitted_once_a_policy_waits_to_be_served(ledger):
    settled(ledger)
    trainable_group(ledger)
    assert ledger.groups.admit_if(plan(), versions_behind=9, settled=True)
    ledger.batches.commit(claim_batch(ledger, groups=1), "p1", {})
    assert not ledger.groups.admit_if(plan(), versions_behind=9, settled=True)
    assert ledger.groups.ahead() == 1
    settled(ledger)
    assert ledger.groups.admit_if(plan(), versions_behind=9, settled=True)


def test_after_a_new_engine_groups_of_the_policy_before_end_first(ledger):
    """It serves the newest policy in the middle of a batch; groups of that policy would overtake."""
    settled(ledger)
    with manager_of(recipe(admission={"schedule": "one_step_off"}), ledger) as manager:
        tick(manager)
        leases = ledger.rollouts.claim("w", 8, 60)
        for lease in leases[:6]:
            finish(ledger, lease, reward=float(lease.index))
        tick(manager)
        ledger.batches.commit(claim_batch(ledger), "p1", {})
        settled(ledger)
        tick(manager)
        assert ledger.groups.ahead() == 2, "one of them is open"
        for lease in leases[6:]:
            finish(ledger, lease, reward=float(lease.index))
        tick(manager)
        assert ledger.groups.ahead() == 4
