"""The bias audit: a planted bias is found at the gate where it happens, and an unbiased run shows none."""

import random

import pytest
from msgspec.structs import replace

from quartet.ledger import Ledger
from quartet.report.bias import Gate, selection_bias
from quartet.types import Status, Task
from tests.ledger.samples import finish, manager_of, plan, recipe

WHOLE = recipe(filters=[], admission={"group_deadline_seconds": 100.0})


def admit(ledger: Ledger, family: str) -> None:
    ledger.groups.admit(replace(plan(), task=Task(env="bandit", family=family, seed=1)))


def judge(ledger: Ledger) -> None:
    ledger.set_value("phase", "judging")
    with manager_of(WHOLE, ledger) as manager:
        manager.tick()


def train(ledger: Ledger) -> None:
    while (batch := ledger.batches.claim("t", 1, 9, "mask", 1000)) is not None:
        ledger.batches.commit(batch, f"policies/v{batch.train_step:06d}", {})


def test_selection_bias_is_empty_without_samples(ledger):
    bias = selection_bias(ledger)
    assert (bias.sampled, bias.counted, bias.trained) == (0, None, None)


def test_an_unbiased_run_shows_none(ledger):
    for family in ("left", "right") * 3:
        admit(ledger, family)
        for lease in ledger.rollouts.claim("w", 2, 1000):
            finish(ledger, lease, reward=float(lease.index))
    judge(ledger)
    train(ledger)
    bias = selection_bias(ledger)
    none = Gate(rollouts=12, family_distance=0.0, turns_ratio=1.0, response_tokens_ratio=1.0)
    assert (bias.sampled, bias.counted, bias.trained) == (12, none, none)


def test_first_to_finish_favours_the_short(ledger, clock):
    """The second member of every group takes four times as long and misses the deadline: kept, and named as a bias."""
    for _ in range(6):
        admit(ledger, "left")
    leases = ledger.rollouts.claim("w", 12, 1000)
    slow = [lease for lease in leases if lease.index == 1]
    for lease in leases:
        if lease.index == 0:
            finish(ledger, lease, reward=1.0)
    clock.now += 101
    judge(ledger)
    for lease in slow:
        finish(ledger, lease, reward=0.0, turns=4)
    bias = selection_bias(ledger)
    assert bias.sampled == 12 and bias.counted is not None
    assert bias.counted.turns_ratio == pytest.approx(1 / 2.5)
    assert bias.counted.family_distance == 0.0


def test_a_family_that_fails_for_reasons_of_infrastructure_is_trained_less(ledger):
    draw = random.Random(1)
    for number in range(40):
        family = ("left", "right")[number % 2]
        admit(ledger, family)
        for lease in ledger.rollouts.claim("w", 2, 1000):
            cut = family == "right" and draw.random() < 0.7
            status = Status.TRUNCATED_TIME if cut else Status.COMPLETED
            finish(ledger, lease, reward=float(lease.index), status=status)
    judge(ledger)
    train(ledger)
    bias = selection_bias(ledger)
    assert bias.counted is not None and bias.trained is not None
    rights = bias.counted.rollouts - 40
    assert bias.counted.family_distance == pytest.approx(0.5 - rights / bias.counted.rollouts, abs=1e-4)
    assert bias.trained.family_distance > bias.counted.family_distance > 0.2
    assert bias.trained.turns_ratio == 1.0


def test_a_filter_is_told_from_a_deadline(ledger):
    """Everything is in time; only the verdict takes one family away."""
    for family in ("left", "right"):
        admit(ledger, family)
        for lease in ledger.rollouts.claim("w", 2, 1000):
            finish(ledger, lease, reward=float(lease.index), turns=1 if family == "left" else 3)
    for group_id in ledger.groups.closable(1000):
        ledger.groups.close(group_id)
    left, right = ledger.groups.closed()
    ledger.groups.make_trainable(left, [member.rollout_id for member in ledger.groups.load(left).members], 2)
    ledger.groups.drop(right, "too_hard")
    train(ledger)
    bias = selection_bias(ledger)
    assert bias.counted is not None and bias.trained is not None
    assert (bias.counted.family_distance, bias.counted.turns_ratio) == (0.0, 1.0)
    assert (bias.trained.family_distance, bias.trained.turns_ratio) == (0.5, 0.5)
