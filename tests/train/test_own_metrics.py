"""Metrics of plug-ins, none of which ends a run, and of the trainer's health, checked by hand."""

import logging
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_batches import make_batch, make_call, make_model, make_trajectory, pack
from trainer_runs import TRAIN, RecipeBuilder, Run, group

from quartet.report.check import check_ledger
from quartet.telemetry.records import read_records
from quartet.train.credit.grpo import Grpo
from quartet.train.credit_batch import CreditBatch
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip
from quartet.train.metrics.batch import zero_credit_group_share
from quartet.train.metrics.gap import add_up
from quartet.train.metrics.gradient_norms import gradient_norms
from quartet.train.metrics.own import own_metrics
from quartet.types import MemberUse


class Astray(PpoClip):
    """A loss of a plugin whose metrics are undeclared, no numbers, or named like the trainer's own."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, Any]]:
        loss, metrics = super().loss(tokens)
        astray = {"nan_nats": math.nan, "text_nats": "much", "grad_nats": loss, "many_nats": torch.ones(3), 7: 1.0}
        own = {"loss": math.nan, "step": "7", "version": 7, "time": 7, "gradient_norm": math.nan}
        return loss, metrics | astray | own | {"importance_square_mean": 1.0, "importance_mean": "none"}


class NoMetrics(PpoClip):
    """A loss of a plugin that returns None instead of metrics."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, Any]:
        return super().loss(tokens)[0], None


class AstrayCredit(Grpo):
    """A credit of a plugin whose metrics are an array of one number and a text."""

    def assign(self, batch: CreditBatch) -> None:
        super().assign(batch)
        batch.metrics |= {"array_nats": np.float32(0.5), "text_nats": "much"}  # type: ignore[dict-item]


@pytest.mark.parametrize("loss", ["Astray", "NoMetrics"])
def test_no_metric_of_a_plugin_ends_a_run(tmp_path: Path, recipe: RecipeBuilder, loss: str) -> None:
    plugins = {"loss": {"terms": f"test_own_metrics:{loss}"}, "credit": "test_own_metrics:AstrayCredit"}
    run = Run(tmp_path / "run", recipe(train=TRAIN, **plugins))
    trainer = run.trainer()
    for version in range(2):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    trainer.finish()
    trainer.recorder.close()
    assert [event.kind for event in run.ledger.events() if event.kind == "train_step_failed"] == []
    assert check_ledger(run.ledger, max_lag=0).findings == []
    records = list(read_records(run.run_dir, "train"))
    assert [(record["step"], record["version"], record["array_nats"]) for record in records] == [
        (1, 1, 0.5),
        (2, 2, 0.5),
    ]
    assert all(math.isfinite(record["loss"]) and record["gradient_norm"] > 0 for record in records)
    assert not any("text_nats" in record or "many_nats" in record for record in records)


def test_a_metric_that_is_no_number_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = {"good": torch.tensor(2.0, requires_grad=True), "odd": [1.0], "flag": True}
            assert own_metrics("NamedOnce", found) == {"good": 2.0, "flag": 1.0}
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "NamedOnce returned 'odd' as a metric, which is left out: a list instead of a number"


def test_the_gradient_norms_of_the_layers_add_up() -> None:
    model = make_model()
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, float(number))
    norms = gradient_norms(model)
    assert norms.keys() == {f"gradient_norm_{kind}" for kind in ("embedding", "attention", "mlp", "other")}
    whole = torch.nn.utils.get_total_norm([one.grad for one in model.parameters() if one.grad is not None])
    assert math.hypot(*norms.values()) == pytest.approx(float(whole), rel=1e-5)
    mlp = sum(number**2 * one.numel() for number, (name, one) in enumerate(model.named_parameters()) if ".mlp." in name)
    assert norms["gradient_norm_mlp"] == pytest.approx(math.sqrt(mlp), rel=1e-5)
    rest = sum(number**2 * one.numel() for number, (name, one) in enumerate(model.named_parameters()) if "norm" in name)
    assert norms["gradient_norm_other"] == pytest.approx(math.sqrt(rest), rel=1e-5)


def test_of_the_largest_ratio_the_maximum_counts_and_of_others_the_sum() -> None:
    totals: Counter[str] = Counter()
    for largest in (2.0, 5.0, 3.0):
        add_up(totals, {"importance_max": largest, "loss": 1.0})
    assert totals == {"importance_max": 5.0, "loss": 3.0}


def test_only_groups_with_trained_tokens_can_be_without_an_advantage() -> None:
    """Of the first group all tokens are masked, the second has equal rewards, the third differs."""
    members = [[make_trajectory([make_call([1], [2])], reward) for reward in pair] for pair in ((0, 1), (1, 1), (0, 1))]
    packed = pack(make_batch(members))
    kept = [branch for branch in packed.branches if branch.group_index]
    assert zero_credit_group_share(replace(packed, branches=kept)) == 0.5
    assert zero_credit_group_share(replace(packed, branches=[])) == 0.0


def test_a_group_with_an_anchor_trains_something() -> None:
    """Rewards of both groups are equal; in the second one member is imitated."""
    members = [[make_trajectory([make_call([1], [2])], 1.0) for _ in range(2)] for _ in range(2)]
    packed = pack(make_batch(members))
    branches = [*packed.branches[:3], replace(packed.branches[3], use=MemberUse.ANCHOR)]
    assert zero_credit_group_share(replace(packed, branches=branches)) == 0.5


def test_groups_without_any_advantage_are_counted(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    equal = [member for member in group(20) if not member.success]
    run.feed(group(10), equal)
    trainer = run.trainer()
    assert trainer.train_one()
    trainer.recorder.close()
    (record,) = read_records(run.run_dir, "train")
    assert record["zero_credit_group_share"] == 0.5
    assert record["importance_max"] > 0
