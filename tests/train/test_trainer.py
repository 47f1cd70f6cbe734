"""The trainer with a real ledger and real files: train steps, their commit, and the end of the loop."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_runs import ACTOR_CRITIC, TRAIN, RecipeBuilder, Run, group, same

from quartet.policy.canary import measure_canary
from quartet.policy.load import load_model
from quartet.registry import build
from quartet.report.check import check_ledger
from quartet.report.recent import newest_train_metrics
from quartet.report.totals import run_totals
from quartet.telemetry.records import read_records
from quartet.telemetry.token_values import assigned, read_token_values
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip
from quartet.train.trainer import run_trainer

pytestmark = pytest.mark.slow

STEPS_DEVIATION = math.sqrt(4 / 15)


@pytest.mark.parametrize(
    ("name", "success", "failure"),
    [
        ("grpo", [2 / math.sqrt(3)] * 2, [-1 / math.sqrt(3)] * 2),
        ("grpo_steps", [2 / 3 / STEPS_DEVIATION] * 2, [-1 / 3 / STEPS_DEVIATION] * 2),
        ("grpo_turns", [4 / math.sqrt(6), 5 / math.sqrt(6)], [-2 / math.sqrt(6), -1 / math.sqrt(6)]),
        ("lite_ppo", [2 / 3 / STEPS_DEVIATION] * 2, [-1 / 3 / STEPS_DEVIATION] * 2),
        ("dr_grpo", [2 / 3] * 2, [-1 / 3] * 2),
        ("rloo", [1.0] * 2, [-0.5] * 2),
    ],
)
def test_train_step_stores_the_credit_of_the_rewards(
    tmp_path: Path, recipe: RecipeBuilder, name: str, success: list[float], failure: list[float]
) -> None:
    """Two groups of one success and two failures, of two calls each, whose last has the reward; worked out by hand."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, credit=name))
    run.feed(group(10), group(20))
    assert run.trainer().train_one()
    stored = read_token_values(run.run_dir, 1, 1)
    assert stored is not None and len(stored) == 2 * 3 * 2
    for call in stored:
        wins = (call.rollout_id - 1) % 3 == 0
        advantages, returns = (assigned(values, call.trained) for values in (call.advantages, call.returns))
        assert advantages == pytest.approx((success if wins else failure)[call.call_index], abs=1e-5)
        assert returns == pytest.approx(float(wins))


def test_a_train_step_publishes_then_commits(run: Run) -> None:
    trainer = run.trainer()
    run.feed(group(10), group(20))
    assert trainer.train_one()
    policy = run.ledger.policies.latest()
    assert (policy.version, policy.train_step, run.ledger.batches.train_step()) == (1, 1, 1)
    assert Path(policy.path).name == "v000001_batch_000001"
    assert not same(run.weights(0), run.weights(1))
    gap = measure_canary(policy.path, load_model(Path(policy.path)))[0]
    assert gap is not None and gap < 1e-5, "the trainer may multiply by another library"
    run.written()
    assert (run.run_dir / "trainer" / "step_000001_batch_000001").is_dir()
    trainer.recorder.close()
    (record,) = read_records(run.run_dir, "train")
    assert record["step"] == record["version"] == 1
    assert record["trained_tokens"] == 2 * 3 * 3
    assert record["reward_mean"] == record["success_mean"] == pytest.approx(1 / 3)
    assert record["branches_per_trajectory"] == 2
    assert {
        "loss",
        "gradient_norm",
        "entropy_nats",
        "gap_k1_nats",
        "lag_mean_versions",
        "commit_seconds",
    } <= record.keys()
    totals = run_totals(run.ledger)
    assert (totals.lost, totals.trained_twice) == (0, 0)


class Surprising(PpoClip):
    """A loss of a plugin that returns a metric and declares none."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        loss, metrics = super().loss(tokens)
        return loss, metrics | {"surprise_nats": 0.5}


def test_a_metric_that_a_loss_does_not_declare_is_recorded(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, loss={"terms": "test_trainer:Surprising"}))
    trainer = run.trainer()
    for version in range(2):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    trainer.recorder.close()
    assert [record["surprise_nats"] for record in read_records(run.run_dir, "train")] == [0.5, 0.5]


class Astray(PpoClip):
    """A loss of a plugin whose metrics are no numbers that JSON knows, and a tensor."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, Any]]:
        loss, metrics = super().loss(tokens)
        strange = {"nan_nats": float("nan"), "infinite_nats": float("inf"), "tensor_nats": torch.tensor(0.5)}
        return loss, metrics | strange


def test_metrics_that_are_not_finite_leave_the_ledger_readable(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, loss={"terms": "test_trainer:Astray"}))
    run.feed(group(10), group(20))
    assert run.trainer().train_one()
    assert run_totals(run.ledger).trained_tokens > 0
    assert check_ledger(run.ledger, max_lag=0).findings == []
    (metrics,) = newest_train_metrics(run.ledger, 1)
    assert [metrics[name] for name in ("nan_nats", "infinite_nats", "tensor_nats")] == [None, None, 0.5]


def test_the_warm_up_of_a_critic_publishes_the_unchanged_policy(tmp_path: Path, recipe: RecipeBuilder) -> None:
    """Two optimizer steps per train step: the first train step is the critic's, the second the policy's too."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, critic={"warmup_steps": 2}, **ACTOR_CRITIC))
    trainer = run.trainer()
    for version in range(2):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    assert run.ledger.policies.latest().version == 2
    assert same(run.weights(0), run.weights(1))
    assert not same(run.weights(1), run.weights(2))


class NanAtTheSecondStep(PpoClip):
    """A loss that is finite for one minibatch, and no number for the next."""

    calls = 0

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        self.calls += 1
        loss, metrics = super().loss(tokens)
        return loss * (float("nan") if self.calls > 1 else 1.0), metrics


def test_a_non_finite_step_is_named_and_undone(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, loss={"terms": "test_trainer:NanAtTheSecondStep"}))
    trainer = run.trainer()
    before = {name: tensor.clone() for name, tensor in trainer.learner.model.state_dict().items()}
    run.feed(group(10), group(20))
    assert trainer.train_one()
    assert same(before, trainer.learner.model.state_dict())
    assert trainer.learner.optimizer_step == 0
    assert run.ledger.batches.train_step() == 0
    assert run.ledger.batches.claim("another", 2, 2, "mask", 60) is not None  # the groups are trainable again
    (failed,) = [event.fields for event in run.ledger.events() if event.kind == "train_step_failed"]
    assert failed["error"].startswith("train step 1, batch 1, policy version 0, optimizer step 2")


async def test_the_loop_ends_at_the_last_train_step(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"max_train_steps": 2}))
    for _ in range(3):
        run.feed(group(10), group(20))
    await run_trainer(run.recipe, run.run_dir, asyncio.Event())
    assert run.ledger.batches.train_step() == 2
    assert "max_train_steps" in (run.ledger.stop_reason() or "")


async def test_the_loop_ends_when_told_to(run: Run) -> None:
    stop = asyncio.Event()
    stop.set()
    await run_trainer(run.recipe, run.run_dir, stop)
    assert run.ledger.stop_reason() is None


def test_published_delta_leads_from_one_version_to_the_next(tmp_path: Path, recipe: RecipeBuilder) -> None:
    rounded = TRAIN | {"publish_dtype": "bfloat16", "learning_rate": 1e-6}
    run = Run(tmp_path / "run", recipe(train=rounded, publisher="delta"))
    trainer, engine = run.trainer(), build(run.recipe.publisher)
    sizes = []
    for version in range(3):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
        read, num_bytes = engine.read(Path(run.ledger.policies.latest().path))
        assert same(read, run.weights(version + 1))
        sizes.append(num_bytes)
    assert max(sizes[1:]) < sizes[0] / 2, "the first is whole"
