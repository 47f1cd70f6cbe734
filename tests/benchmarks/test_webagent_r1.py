"""The experiment of WebAgent-R1: what the expert shows is imitated, and nothing else is."""

import pytest

from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.locks.signs import Signs
from benchmarks.strategies.webagent_r1 import FAMILIES, Main, imitated, uniform
from quartet.env.environment.locks import LOCKS, buttons, code


def test_imitation_of_one_task_teaches_its_signs_and_leaves_the_other_sign_of_the_lock_uniform():
    settings = Main.settings("warm-up")
    taught, tokens = imitated(Signs(FAMILIES, uniform()), settings, 0)
    policy = TablePolicy(taught, settings, 0)
    assert tokens == sum(LOCKS[family].steps for family in FAMILIES), "every press is one token"
    for family in FAMILIES:
        right = [
            policy.chance(taught.page(sign), taught.token(f"click [{press}]")) for sign, press in code(family).items()
        ]
        unseen, *seen = sorted(right)
        assert unseen == pytest.approx(1 / max(buttons(family).values()), abs=1e-3)
        assert min(seen) > 0.95
