"""The trainer with a real ledger and real files: commit order, recovery, refusal, starvation."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tiny_batches import make_call, make_model, make_tokenizer, make_trajectory

from quartet.config import Recipe
from quartet.errors import CheckpointError, LedgerError, StarvedError
from quartet.ledger import Ledger
from quartet.ledger.batches import Batches
from quartet.ledger.checkpoints import CheckpointProgress, checkpoint_folder
from quartet.manager.retention import Retention
from quartet.policy.canary import measure_canary
from quartet.policy.load import load_model
from quartet.policy.save import save_policy
from quartet.policy.weights import read_weights
from quartet.registry import build
from quartet.report.check import check_ledger
from quartet.report.recent import newest_train_metrics
from quartet.report.totals import run_totals
from quartet.runtime.run import starvation_advice
from quartet.telemetry.presence import Presence, ReportSink
from quartet.telemetry.record import Recorder
from quartet.telemetry.records import read_records
from quartet.telemetry.token_values import assigned, read_token_values
from quartet.train import policy_writer
from quartet.train.held_batches import HeldBatches
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip
from quartet.train.starvation import LEAST_SOLVED_GROUPS, reason_without_batch, starvation
from quartet.train.trainer import Trainer, run_trainer
from quartet.types import ACTIONS_LEFT, GENERATED, Batch, Policy, ReplayRule, RolloutPlan, Trajectory
from quartet.types.plan import Root, Round

pytestmark = pytest.mark.slow

RecipeBuilder = Callable[..., Recipe]
TRAIN = {"groups_per_batch": 2, "learning_rate": 0.01, "minibatches": 2}
ACTOR_CRITIC = {"credit": "gae", "loss": {"terms": ["ppo_clip", "value"]}}
OWN_MODELS = {
    "credit": "gae",
    "critic": {"name": "model", "warmup_steps": 1},
    "loss": {"terms": ["ppo_clip", "value", "kl"]},
    "reference": {"train_steps_per_move": 1, "move_share": 0.5},
}
"""A critic of its own in its warm-up, and a reference that follows the policy."""


class Run:
    """A run directory with an initial policy, and hands to feed it."""

    def __init__(self, run_dir: Path, recipe: Recipe, clock: Callable[[], float] = time.time) -> None:
        self.run_dir, self.recipe = run_dir, recipe
        self.ledger = Ledger.create(run_dir, durability=recipe.ledger.durability, clock=clock)
        save_policy(make_model(), make_tokenizer(), run_dir / "initial")
        self.ledger.policies.register_initial(str(run_dir / "initial"))
        self._trainers: list[Trainer] = []

    def trainer(self, sink: ReportSink | None = None) -> Trainer:
        """A new trainer; what the earlier ones write is whole."""
        self.written()
        presence = Presence(sink or self.ledger.modules, "trainer", interval_seconds=0)
        recorder = Recorder(self.run_dir, "trainer")
        self._trainers.append(Trainer(self.recipe, self.ledger, self.run_dir, recorder, presence))
        return self._trainers[-1]

    def forget_trainers(self) -> None:
        """Let the next trainer start although the earlier ones still write, as after their death."""
        self._trainers.clear()

    def written(self) -> None:
        """Wait for the checkpoints that the trainers write."""
        for trainer in self._trainers:
            trainer.checkpoints.wait(lambda: None)

    def feed(self, *groups: list[Trajectory], replayed: Mapping[int, ReplayRule] | None = None) -> None:
        """Admit groups, finish their rollouts with these trajectories, and make them trainable; `replayed` join all."""
        for members in groups:
            plan = RolloutPlan(task=members[0].task, num_rollouts=len(members), max_turns=3)
            group_id = self.ledger.groups.admit(plan)
            leases = self.ledger.rollouts.claim("worker", len(members), 60)
            for lease, trajectory in zip(leases, members, strict=True):
                self.ledger.trajectories.append(lease, trajectory, 3)
            self.ledger.groups.close(group_id)
            self.ledger.groups.make_trainable(group_id, [lease.rollout_id for lease in leases], 2, replayed=replayed)

    def drop(self, members: list[Trajectory], more: Round = (), params: Mapping[str, int] | None = None) -> None:
        """Admit a group of the first three members, and `more` rollouts; finish them, and drop it for equal rewards."""
        task = replace(group(10)[0].task, params=dict(params or {}))
        group_id = self.ledger.groups.admit(RolloutPlan(task=task, num_rollouts=3, max_turns=3))
        assert not more or self.ledger.groups.extend(group_id, more)
        leases = self.ledger.rollouts.claim("worker", len(members), 60)
        for lease, trajectory in zip(leases, members, strict=True):
            self.ledger.trajectories.append(lease, trajectory, 3)
        self.ledger.groups.close(group_id)
        self.ledger.groups.drop(group_id, "equal_rewards")

    def weights(self, version: int) -> dict[str, torch.Tensor]:
        return read_weights(next(policy.path for policy in self.ledger.policies.live() if policy.version == version))


def equal_group(reward: float) -> list[Trajectory]:
    """Three rollouts of one turn with the same reward."""
    return [make_trajectory([make_call([1, 2, 10], [10])], reward) for _ in range(3)]


def group(arm: int, *, version: int = 0, logprob: float = -2.0) -> list[Trajectory]:
    """Three rollouts of two turns; the one that picked `arm` first succeeded."""
    return [
        make_trajectory(
            [
                make_call([1, 2, arm], [pick, 9], logprobs=[logprob, -1.0], version=version),
                make_call([4, pick], [5], version=version),
            ],
            float(pick == arm),
        )
        for pick in (arm, arm + 1, arm + 2)
    ]


@pytest.fixture
def run(tmp_path: Path, recipe: RecipeBuilder) -> Run:
    return Run(tmp_path / "run", recipe(train=TRAIN))


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


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


def test_trainer_without_enough_groups_reports_its_wait(run: Run) -> None:
    trainer = run.trainer()
    run.feed(group(10))
    assert not trainer.train_one()
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert (row.state, row.waiting_for) == ("waiting", "2 trainable groups")
    assert row.ends_when


def test_a_held_back_policy_says_what_it_waits_for_and_is_not_starving(tmp_path: Path, recipe: RecipeBuilder) -> None:
    admission = {"on_late": "wait", "max_lag": 1}
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}, admission=admission))
    trainer = run.trainer()
    run.feed(group(10), group(20))
    assert trainer.train_one()
    run.ledger.groups.admit(RolloutPlan(task=group(10)[0].task, num_rollouts=1, max_turns=3))  # due later
    (lease,) = run.ledger.rollouts.claim("worker", 1, 60)
    for version in (1, 2):
        run.feed(group(10, version=version), group(20, version=version))
    assert trainer.train_one()  # as old as it, which may be in the next one too
    assert not trainer.train_one()
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert row.waiting_for == "unfinished groups that the next policy would make too old"
    assert row.ends_when.startswith("1 of them end, at 180 s")
    run.ledger.groups.close(lease.group_id)
    run.ledger.groups.drop(lease.group_id, "too_few_countable")
    assert trainer.train_one()
    assert run_totals(run.ledger).held_back_seconds > 0


def test_time_without_a_batch_to_hold_back_is_not_counted(tmp_path: Path, recipe: RecipeBuilder) -> None:
    """Another trainer takes the groups for a while: when they are back, nothing holds them back any more."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, admission={"on_late": "wait", "max_lag": 0}))
    trainer = run.trainer()
    straggler = run.ledger.groups.admit(RolloutPlan(task=group(10)[0].task, num_rollouts=1, max_turns=3))
    run.ledger.rollouts.claim("worker", 1, 60)
    run.feed(group(10, version=1), group(20, version=1))
    assert not trainer.train_one()
    trainer.wait.explain()
    batch = run.ledger.batches.claim("another", 2, 1, "wait", 60)
    assert batch is not None
    trainer.wait.explain()
    run.ledger.groups.close(straggler)
    run.ledger.groups.drop(straggler, "too_few_countable")
    run.ledger.batches.release(batch)
    assert trainer.train_one()
    assert run_totals(run.ledger).held_back_seconds == 0


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


def test_old_checkpoints_go_after_the_commit(run: Run) -> None:
    trainer = run.trainer()
    for version in range(4):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    trainer.finish()
    names = sorted(folder.name for folder in (run.run_dir / "trainer").iterdir())
    assert names == ["step_000003_batch_000003", "step_000004_batch_000004"]


ROUNDED = {"train": TRAIN | {"publish_dtype": "bfloat16"}}


ADAPTER = {"lora": {"rank": 2}, "loss": {"terms": ["ppo_clip", "kl"]}}
MERGED = {"lora": {"rank": 2, "publish": "merged"}}


ADAPTER_AND_CRITIC = ADAPTER | ACTOR_CRITIC | {"critic": "model"}


@pytest.mark.parametrize(
    "method",
    [
        {},
        ROUNDED,
        OWN_MODELS,
        ADAPTER_AND_CRITIC,
        pytest.param(ROUNDED | ACTOR_CRITIC, marks=pytest.mark.campaign),
        pytest.param(ADAPTER, marks=pytest.mark.campaign),
        pytest.param(MERGED | ROUNDED, marks=pytest.mark.campaign),
        pytest.param(ADAPTER | ACTOR_CRITIC, marks=pytest.mark.campaign),
    ],
)
def test_a_new_trainer_goes_on_bit_for_bit(tmp_path: Path, recipe: RecipeBuilder, method: dict[str, Any]) -> None:
    """The checkpoints are written by a thread; rounded policies do not hold the exact weights."""
    setting = recipe(**{"train": TRAIN, "model": {"path": str(tmp_path / "run" / "initial")}} | method)
    run, other = (Run(tmp_path / name, setting) for name in ("run", "other"))
    batches = [(group(10), group(20)), (group(30), group(12))]
    uninterrupted = run.trainer()
    for batch in batches:
        run.feed(*batch)
        other.feed(*batch)
        assert uninterrupted.train_one()
        assert other.trainer().train_one()
    assert same(run.weights(2), other.weights(2))
    assert same(uninterrupted.learner.parameters, other.trainer().learner.parameters)


def test_a_crash_between_files_and_commit_trains_the_batch_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Run(tmp_path / "other", run.recipe)
    for each in (run, other):
        each.feed(group(10), group(20))
        assert each.trainer().train_one()
        each.feed(group(30), group(12))
    with monkeypatch.context() as fault, pytest.raises(KeyboardInterrupt):
        fault.setattr(Batches, "commit", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        run.trainer().train_one()
    assert (run.run_dir / "policies" / "v000002_batch_000002").is_dir()
    assert (run.ledger.policies.latest().version, run.ledger.batches.train_step()) == (1, 1)
    assert run.trainer().train_one()
    assert other.trainer().train_one()
    assert same(run.weights(2), other.weights(2))
    folders = sorted(folder.name for folder in (run.run_dir / "policies").iterdir())
    assert folders == ["v000001_batch_000001", "v000002_batch_000003"]  # what the crash left is gone
    totals = run_totals(run.ledger)
    assert (totals.lost, totals.trained_twice) == (0, 0)


def test_sparse_checkpoints_roll_back_to_the_last_one(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}))
    trainer = run.trainer()
    for version in range(3):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    third = run.weights(3)
    again = run.trainer()
    assert (run.ledger.batches.train_step(), again.version) == (2, 2)
    assert again.train_one()
    assert run.ledger.policies.latest().version == 4  # 3 is never used again
    assert same(run.weights(4), third)


def sparse_run(tmp_path: Path, recipe: RecipeBuilder, steps: int, **disk: int) -> Run:
    """A run with a checkpoint every second train step, stopped hard after `steps`."""
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}, disk=disk))
    trainer = run.trainer()
    for version in range(steps):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    run.written()
    return run


def test_sparse_checkpoints_and_few_policies_leave_a_way_back(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = sparse_run(tmp_path, recipe, 5, keep_policies=1, min_free_megabytes=1)
    assert Retention(run.recipe.disk, run.ledger, run.run_dir).sweep() is None
    assert run.trainer().version == 4
    assert check_ledger(run.ledger).findings == []
    assert Retention(run.recipe.disk, run.ledger, run.run_dir).sweep() is None
    again = run.trainer()
    assert again.train_one() and again.version == 6


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("missing", "policies/v000004_batch_000004"),
        ("emptied", "trainer/step_000004_batch_000004"),
        pytest.param("missing", "trainer/step_000004_batch_000004", marks=pytest.mark.campaign),
        pytest.param("emptied", "policies/v000004_batch_000004", marks=pytest.mark.campaign),
    ],
)
def test_damage_to_the_newest_pair_leads_back_to_the_one_before(
    tmp_path: Path, recipe: RecipeBuilder, lost: str, damage: str
) -> None:
    run = sparse_run(tmp_path, recipe, 5)
    if damage == "missing":
        (run.run_dir / lost).rename(run.run_dir / "elsewhere")
    else:
        next((run.run_dir / lost).glob("*.safetensors")).write_bytes(b"")
    trainer = run.trainer()
    assert (trainer.version, run.ledger.batches.train_step()) == (2, 2)
    assert trainer.train_one()
    assert run.ledger.policies.latest().version == 6


def test_a_run_that_ended_well_goes_on_from_its_last_step(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2, "max_train_steps": 3}))
    run.feed(*(group(arm) for arm in (10, 20, 30, 12, 10, 20)))
    asyncio.run(run_trainer(run.recipe, run.run_dir, asyncio.Event()))
    assert (run.trainer().version, run.ledger.batches.train_step()) == (3, 3)


def test_without_a_checkpoint_and_its_policy_the_error_helps(run: Run) -> None:
    run.feed(group(10), group(20))
    trainer = run.trainer()
    assert trainer.train_one()
    trainer.finish()
    (run.run_dir / "trainer" / "step_000001_batch_000001").rename(run.run_dir / "elsewhere")
    with pytest.raises(CheckpointError, match="at train step 1, and no train step has both") as caught:
        run.trainer()
    assert "start a new run" in caught.value.advice


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


def test_a_lost_lease_is_refused_and_the_trainer_goes_on(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, runtime={"heartbeat_timeout_seconds": 1e-6}))

    class Expiring:
        """A heartbeat during which the data manager takes overdue batches back, once."""

        armed = True

        def report(self, module: str, **fields: object) -> None:
            if self.armed:
                self.armed = not run.ledger.batches.expire()

    trainer = run.trainer(Expiring())
    run.feed(group(10), group(20))
    assert trainer.train_one()
    assert run.ledger.batches.train_step() == 0
    assert same(run.weights(0), trainer.learner.model.state_dict())
    assert trainer.train_one()
    assert (run.ledger.batches.train_step(), trainer.version) == (1, 1)


def test_a_trainer_keeps_its_batch_as_long_as_the_supervisor_may_let_it_live_without_a_heartbeat(
    tmp_path: Path, recipe: RecipeBuilder
) -> None:
    """It waits for a processor. With a shorter lease it would train the batch again and again."""
    now = [1e9]
    run = Run(tmp_path / "run", recipe(train=TRAIN), clock=lambda: now[0])
    run.feed(group(10), group(20))
    assert HeldBatches(run.recipe, run.ledger, Presence(run.ledger.modules, "trainer")).claim(after=None)
    now[0] += run.recipe.runtime.longest_silence_seconds - 1
    assert run.ledger.batches.expire() == 0
    now[0] += 2
    assert run.ledger.batches.expire() == 1


def test_a_trainer_that_wakes_up_late_touches_nothing_of_its_successor(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped with a computed step, it writes its files when another one has already committed the same step."""
    late, successor = run.trainer(), run.trainer()
    run.feed(group(10), group(20), group(30), group(12))
    committed: dict[str, torch.Tensor] = {}

    def stopped_before_it_writes(*arguments: Any) -> None:
        assert successor.train_one()
        committed.update(run.weights(1))
        with torch.no_grad():
            next(late.learner.model.parameters()).add_(1.0)
        give_weights(*arguments)

    give_weights = late.learner.give_weights
    monkeypatch.setattr(late.learner, "give_weights", stopped_before_it_writes)
    with pytest.raises(LedgerError, match="version 1 is the newest in the ledger, but this trainer is at version 0"):
        late.train_one()
    assert (run.ledger.batches.train_step(), successor.version) == (1, 1)
    assert same(run.weights(1), committed)
    assert successor.train_one()  # nothing of it was rolled back
    assert run.trainer().version == 2


def test_a_late_trainer_whose_files_were_tidied_away_is_told_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    late, successor = run.trainer(), run.trainer()
    run.feed(group(10), group(20))

    def overtaken(model: object, tokenizer: object, folder: Path, branches: object, **options: object) -> None:
        raise FileNotFoundError(f"{folder}.writing")

    with monkeypatch.context() as deleted:
        deleted.setattr(policy_writer, "publish_policy", overtaken)
        assert late.train_ahead()
        while not late.writer.has_ended:
            time.sleep(0.01)
    assert successor.train_one()
    with pytest.raises(LedgerError, match="another trainer has committed"):
        late.settle()
    assert (run.ledger.batches.train_step(), successor.version) == (1, 1)


async def test_starving_stops_the_run_with_an_explanation(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    with pytest.raises(StarvedError, match="starved: fewer than 2 trainable groups"):
        await run_trainer(run.recipe, run.run_dir, asyncio.Event())
    assert (run.ledger.stop_reason() or "").startswith("starved")


@pytest.mark.parametrize(
    ("solved", "failed", "without_result"),
    [(LEAST_SOLVED_GROUPS, 0, 0), (LEAST_SOLVED_GROUPS - 1, 0, 0), (LEAST_SOLVED_GROUPS, 1, 0), (20, 0, 1)],
)
def test_a_run_ends_as_solved_only_if_many_groups_were_dropped_and_none_has_a_failure(
    tmp_path: Path, recipe: RecipeBuilder, solved: int, failed: int, without_result: int
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for reward in [1.0] * solved + [0.0] * failed:
        run.drop(equal_group(reward))
    for _ in range(without_result):
        run.drop([])
    reason = reason_without_batch(run.ledger, "no batch")
    if failed or without_result or solved < LEAST_SOLVED_GROUPS:
        assert reason.startswith("starved: no batch; since the start;")
    else:
        assert reason == (
            "solved: all rollouts succeeded in the 16 groups dropped since the start; no batch; "
            "training rollouts ended: 48 completed"
        )


@pytest.mark.parametrize("params", [{ACTIONS_LEFT: 1}, {GENERATED: 1}])
def test_easier_forms_of_tasks_do_not_end_a_run_as_solved(
    tmp_path: Path, recipe: RecipeBuilder, params: dict[str, int]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.drop(equal_group(1.0), params=params)
    assert reason_without_batch(run.ledger, "no batch").startswith("starved: no batch")


def test_guided_rollouts_do_not_end_a_run_as_solved(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.drop([*equal_group(1.0), *equal_group(1.0)], more=[Root(guided=True)] * 3)
    assert reason_without_batch(run.ledger, "no batch").startswith("starved: no batch")


def test_a_resumed_run_counts_no_group_from_before_its_resume(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    run.feed(group(10), group(20))
    trainer = run.trainer()
    assert trainer.train_one()
    run.written()
    run.ledger.policies.mark_settled(1, serving=1)
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    assert "dropped since train step 1; no batch" in reason_without_batch(run.ledger, "no batch")
    run.ledger.enter_phase("training")
    assert reason_without_batch(run.ledger, "no batch").startswith(
        "starved: no batch; since the resume after train step 1; 0 groups were judged and 0 kept"
    )


def test_a_solved_run_is_stopped_without_an_error(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.trainer().wait.explain()
    assert (run.ledger.stop_reason() or "").startswith("solved: ")


def test_a_run_that_starves_since_the_engine_rejects_the_policy_says_so(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.feed(group(10), group(20))
    trainer = run.trainer()
    run.ledger.policies.mark_settled(0, serving=0)
    assert trainer.train_one()
    run.written()
    run.ledger.event("policy_refused", module="engine", policy="other", version=1, error="another policy")
    open_at_the_end = {"training_ended": 8}
    assert starvation_advice(run.run_dir, open_at_the_end).startswith("no filter dropped a group")
    dropped = open_at_the_end | {"equal_rewards": 3}
    assert starvation_advice(run.run_dir, dropped).startswith("most groups were dropped for equal_rewards")
    run.ledger.event("policy_refused", module="engine", policy="main", version=1, error="gap of 0.3 nats")
    assert starvation(run.ledger, "no batch").endswith("train steps from the served to the newest policy: 1")
    assert starvation_advice(run.run_dir, {"equal_rewards": 3}).startswith(
        "the engine rejected the newest policy: gap of"
    )
    run.ledger.policies.mark_settled(1, serving=1)
    assert "train steps from" not in starvation(run.ledger, "no batch")


def test_no_starvation_before_the_training_phase(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    trainer = run.trainer()
    for phase, waiting_for in (("evaluating before", "the evaluation"), ("starting", "the start of all modules")):
        run.ledger.enter_phase(phase)
        trainer.wait.explain()
        (row,) = run.ledger.modules.all()
        assert (row.state, row.waiting_for) == ("waiting", waiting_for)
    assert run.ledger.stop_reason() is None
    run.ledger.enter_phase("training")
    with pytest.raises(StarvedError):
        trainer.wait.explain()


def test_time_before_the_training_phase_does_not_count_as_starvation(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 300}))
    trainer, now = run.trainer(), time.monotonic()
    run.ledger.enter_phase("starting")
    for seconds, phase in ((400, "starting"), (600, "training")):
        monkeypatch.setattr(time, "monotonic", lambda passed=seconds: now + passed)
        run.ledger.enter_phase(phase)
        trainer.wait.explain()
    assert run.ledger.stop_reason() is None


def test_after_the_stop_a_trainer_waits_for_the_end_and_is_not_starving(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    trainer = run.trainer()
    run.ledger.request_stop("enough")
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert (row.waiting_for, row.ends_when) == ("the end of training", "the trainer has ended")
    assert run.ledger.stop_reason() == "enough"


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


FULL = {"durability": "full"}


def trained(run: Run, steps: int) -> Trainer:
    trainer = run.trainer()
    for version in range(steps):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    return trainer


def test_with_full_durability_files_and_folders_are_synced_before_the_commit(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL))
    synced: list[Path] = []
    fsync, commit = os.fsync, Batches.commit

    def recording(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    def checked(
        batches: Batches, batch: Batch, path: str, metrics: dict[str, Any], checkpoints: CheckpointProgress
    ) -> Policy:
        last_sync = {place: number for number, place in enumerate(synced)}
        synced_in_order(last_sync, Path(path))
        return commit(batches, batch, path, metrics, checkpoints)

    def synced_in_order(last_sync: dict[Path, int], folder: Path) -> None:
        writing = folder.with_name(f"{folder.name}.writing")
        files = [last_sync[writing / file.name] for file in folder.iterdir()]
        assert max(files) < last_sync[writing] < last_sync[folder.parent] < last_sync[run.run_dir]

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.setattr(Batches, "commit", checked)
    trained(run, 2)
    run.written()
    assert run.ledger.batches.train_step() == 2
    last_sync = {place: number for number, place in enumerate(synced)}
    synced_in_order(last_sync, checkpoint_folder(run.run_dir, 2, 2))


def zero(folder: Path) -> None:
    """What power loss makes of files whose names are on the disk and whose content is not."""
    for file in folder.iterdir():
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(
    "lost",
    [["policies", "trainer"], *(pytest.param([one], marks=pytest.mark.campaign) for one in ("policies", "trainer"))],
)
def test_after_power_loss_a_run_goes_on_from_the_newest_whole_pair(
    tmp_path: Path, recipe: RecipeBuilder, lost: list[str]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL))
    trained(run, 3)
    second = run.weights(2)
    run.written()
    for name in lost:
        zero(max((run.run_dir / name).iterdir()))
    trainer = run.trainer()
    assert (trainer.version, run.ledger.batches.train_step(), run.ledger.policies.latest().version) == (2, 2, 2)
    assert same(second, trainer.learner.model.state_dict())
    (damaged,) = [event.fields for event in run.ledger.events() if event.kind == "recovery_point_damaged"]
    assert damaged["train_step"] == 3
    assert trainer.train_one()  # the groups of the lost step are trained again
    assert (run.ledger.batches.train_step(), run.ledger.policies.latest().version) == (3, 4)
    assert check_ledger(run.ledger, max_lag=2).findings == []


def test_a_slow_disk_is_progress_and_the_batch_is_kept(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sync takes 20 s: all of them longer than the supervisor waits, each of them not so long."""
    now, fsync, beats = [1e9], os.fsync, [1e9]
    synced, seen = threading.Semaphore(0), threading.Semaphore(0)

    def slow(descriptor: int) -> None:
        fsync(descriptor)
        if "policy" in threading.current_thread().name:  # nothing waits for a checkpoint
            now[0] += 20.0
            synced.release()
            assert seen.acquire(timeout=60)

    def wait(writing: list[futures.Future[None]], timeout: float) -> None:
        while not synced.acquire(timeout=0.01):
            if writing[0].done():
                return
        run.ledger.batches.expire()  # as the data manager does all the time
        seen.release()

    class Supervisor:
        def report(self, module: str, **fields: object) -> None:
            beats.append(now[0])

    timeout = {"heartbeat_timeout_seconds": 50}
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL, runtime=timeout), clock=lambda: now[0])
    trainer = run.trainer(Supervisor())
    run.feed(group(10), group(20))
    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(futures, "wait", wait)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert trainer.train_one()
    assert run.ledger.batches.train_step() == 1
    assert now[0] - 1e9 > 100
    assert max(later - earlier for earlier, later in pairwise([*beats, now[0]])) < 50


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
