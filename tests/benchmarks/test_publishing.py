"""The benchmark of publishing, on a model that is small enough for a test."""

import pytest

from benchmarks import publishing
from benchmarks.trainer_contenders.base import VOCABULARY

SMALL = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64}


@pytest.mark.campaign
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_part_takes_processor_time_and_the_shares_are_those_of_a_train_step(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(publishing, "SHAPE", SMALL)
    monkeypatch.setattr(publishing, "VOCABULARY", VOCABULARY)
    result = publishing.measure(dtype)
    assert result["train_steps_per_checkpoint"] == 1, "its checkpoint is small"
    assert result["sequence_tokens"] > 16 * 500
    assert result["update_seconds"] > 0
    assert 0 < result["blocked_share"] < 1
    assert result["beside_share"] > 0
