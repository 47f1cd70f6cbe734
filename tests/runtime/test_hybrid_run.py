"""A whole run with an engine beside the trainer."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.telemetry.records import read_records
from tests.live_runs import promises_hold, train


@pytest.mark.campaign
def test_an_engine_beside_the_trainer_serves_between_steps_and_nothing_is_lost(
    bandit_policy: Path, tmp_path: Path
) -> None:
    engine = {"replicas": 2, "replicas_beside_trainer": 1}
    recipe = bandit_recipe(bandit_policy, engine=engine, evaluation={"before_and_after": False})
    summary = train(tmp_path / "run", recipe)
    promises_hold(tmp_path / "run", summary)
    served = [
        record["generated_tokens_per_second"]
        for record in read_records(tmp_path / "run", "engine")
        if record["role"] == "engine-2" and "generated_tokens_per_second" in record
    ]
    assert any(served)
