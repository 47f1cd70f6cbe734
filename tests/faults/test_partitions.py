"""Runs whose machines are cut off from each other and come back: nothing lost, nothing twice, nothing too old, and the
status says what is going on. `python -m benchmarks.partitions` is the same with a hundred cuts."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.network.node import why_not
from benchmarks.partitions import PROMISES, measure
from tests.postgresql import needs_postgresql

pytestmark = [
    needs_postgresql,
    pytest.mark.skipif(bool(reason := why_not()), reason=f"no network namespaces: {reason}"),
]


def promises_hold(result: dict[str, Any]) -> None:
    assert not result["findings"] and not result["unexplained"]
    assert [result[name] for name in PROMISES] == [0, 0, 0] and result["replay_identical"]
    assert result["trained"] > result["train_steps"] > 0


@pytest.mark.campaign
def test_a_run_whose_nodes_are_cut_off_keeps_its_promises(tmp_path: Path, bandit_policy: Path) -> None:
    result = measure(bandit_policy, tmp_path, cuts=10, outage=True)
    promises_hold(result)
    assert set(result["cuts_by_node"].values()) == {2, 3} and result["packets_lost"] > 0
