"""ReMix's replay: how many stored rollouts join, from which policies, by which rule, and that it ignores rewards."""

import pytest
from test_replay import members, rolled_out, tick

from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.report.check import check_ledger
from quartet.types import ReplayRule
from tests.ledger.samples import recipe


def composed(
    ledger: Ledger, *rewards: float, family: str = "left", **settings: float
) -> list[tuple[float, ReplayRule | None]]:
    """Train a group with these rewards, whose rollouts were sampled by version 0; return its members."""
    rolled_out(ledger, *rewards, family=family)
    tick(ledger, name="recent", **settings)
    batch = ledger.batches.claim("t", 1, 9, "mask", 60)
    assert batch is not None
    ledger.batches.commit(batch, f"policies/v{batch.train_step:06d}", {})
    (group,) = batch.groups
    return members(group)


def stored(found: list[tuple[float, ReplayRule | None]]) -> list[float]:
    assert all(rule is ReplayRule.STORED for _, rule in found if rule is not None)
    return sorted(reward for reward, rule in found if rule is not None)


def test_stored_rollouts_are_a_share_of_the_group(ledger):
    """Of 3 fresh members and 2 stored ones, two fifths are stored; with the share 0.25 it is 1 of 4."""
    assert stored(composed(ledger, 0.0, 1.0, 0.0)) == []
    assert len(stored(composed(ledger, 0.0, 1.0, 0.0))) == 2
    assert len(stored(composed(ledger, 0.0, 1.0, 0.0, share=0.25))) == 1
    assert {finding.kind for finding in check_ledger(ledger).findings} == {"policy_missing"}, "no files were published"


def test_successes_and_failures_join(ledger):
    composed(ledger, 0.0, 1.0)
    assert stored(composed(ledger, 0.0, 1.0, share=0.5)) == [0.0, 1.0]


def test_rollouts_of_older_policies_do_not_join(ledger):
    composed(ledger, 0.0, 1.0, policies=1)
    composed(ledger, 0.0, 1.0, family="right", policies=1)
    assert stored(composed(ledger, 0.0, 1.0, policies=1)) == []
    assert stored(composed(ledger, 0.0, 1.0, policies=3, share=0.8)) != []


def test_no_stored_rollout_joins_after_the_last_train_step(ledger):
    """Groups of the train steps 1 to 3, of which the first has nothing stored and the third is after step 2."""
    found = [stored(composed(ledger, 0.0, 1.0, 0.0, last_train_step=2)) for _ in range(3)]
    assert [len(rewards) for rewards in found] == [0, 2, 0]


def test_demonstrations_are_refused():
    with pytest.raises(ConfigError, match="would replay demonstrations"):
        recipe(replay={"name": "recent", "demonstrations": "some.jsonl"})
