"""The audit of a sound run finds nothing; of the same run with altered receipts it finds what was altered."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec import structs

from benchmarks.bandit import bandit_recipe
from benchmarks.crashes.made_up import TASK, made_up
from quartet.config import Recipe
from quartet.env.base import Env
from quartet.policy.make import make_policy
from quartet.report.audit import audit, retrace
from quartet.report.audit.retrace import tokens_over_lag
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.rollout.loop.latest import LatestLoop
from quartet.runtime.run import run_recipe
from quartet.telemetry.receipts import FOLDER
from quartet.telemetry.token_values import CallValues
from quartet.train.credit.grpo import Grpo
from quartet.train.packing.branches import pack_batch
from quartet.types import Batch, Group, GroupMember, Purpose, Task, Trajectory

pytestmark = pytest.mark.slow
STEPS = 3
"""Train steps of `recorded_run`."""
Receipts = list[dict[str, Any]]


def audited(policy: Path, train_steps: int, **sections: Any) -> Recipe:
    return bandit_recipe(
        policy,
        runtime={"kind": "synchronous", "receipts": True},
        train={"max_train_steps": train_steps, "learning_rate": 1e-4},
        evaluation={"before_and_after": False},
        **sections,
    )


def altered(recorded_run: Path, folder: Path, role: str, alter: Callable[[Receipts], object]) -> Path:
    """A copy of the run in which the receipts of one role were altered."""
    run_dir = folder / "run"
    shutil.copytree(recorded_run, run_dir, ignore=shutil.ignore_patterns("*-wal", "*-shm"))  # of a reader beside it
    (file,) = (run_dir / FOLDER).glob(f"{role}-*.jsonl")
    receipts = [json.loads(line) for line in file.read_text().splitlines()]
    alter(receipts)
    file.write_text("".join(json.dumps(receipt) + "\n" for receipt in receipts))
    return run_dir


def of_type(receipts: Receipts, kind: str) -> Receipts:
    return [receipt for receipt in receipts if receipt["type"] == kind]


def test_a_sound_run_has_no_findings(recorded_run: Path) -> None:
    report = audit(recorded_run)
    assert not report.findings
    assert (report.train_steps, report.abandoned_steps, report.replay_identical) == (STEPS, 0, True)
    assert report.appended >= report.trained == STEPS * 2 * 8


@pytest.mark.parametrize("critic", ["head", "model"])
def test_a_run_with_models_beside_the_policy_is_trained_again_bit_for_bit(
    tmp_path: Path, bandit_policy: Path, critic: str
) -> None:
    """A critic, as a head on the policy or as a model of its own, and a moving reference."""
    methods = {"credit": {"name": "gae"}, "critic": {"name": critic}, "reference": {"train_steps_per_move": 1}}
    recipe = audited(bandit_policy, 2, loss={"terms": ["ppo_clip", "value", "kl"]}, **methods)
    run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    report = audit(tmp_path / "run")
    assert (report.findings, report.train_steps, report.replay_identical) == ([], 2, True)


@pytest.mark.parametrize("publish", ["adapter", "merged"])
def test_a_run_that_trains_an_adapter_is_trained_again_bit_for_bit(
    tmp_path: Path, bandit_policy: Path, publish: str
) -> None:
    """The base is the reference for the KL term, and the engine serves each version of the adapter."""
    lora = {"rank": 4, "publish": publish}
    recipe = audited(bandit_policy, 2, loss={"terms": ["ppo_clip", "kl"]}, lora=lora)
    run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    newest = max((tmp_path / "run" / "policies").iterdir())
    assert (newest / "model.safetensors").exists() is (publish == "merged")
    report = audit(tmp_path / "run")
    assert (report.findings, report.train_steps, report.replay_identical) == ([], 2, True)


def test_a_policy_with_a_name_is_audited_like_any_other(tmp_path: Path, bandit_policy: Path) -> None:
    """Its checkpoints and versions lie in folders of its own."""
    recipe = audited(bandit_policy, 1, policies={"solver": {}})
    run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    report = audit(tmp_path / "run")
    assert (report.findings, report.train_steps, report.replay_identical) == ([], 1, True)


def test_missing_token_values_are_computed_again(recorded_run: Path, tmp_path: Path) -> None:
    """Of the first step nothing is left, of the second what a Quartet of schema 5 kept, which knew no groups."""
    run_dir = altered(recorded_run, tmp_path, "trainer", lambda receipts: None)
    first, second, _ = sorted((run_dir / "tokens").iterdir())
    first.unlink()
    calls = msgspec.msgpack.decode(second.read_bytes(), type=list[CallValues])
    former = [structs.replace(call, group_id=None, advantages=b"", returns=b"") for call in calls]
    second.write_bytes(msgspec.msgpack.encode(former))
    report = audit(run_dir)
    assert (report.findings, report.replay_identical) == ([], True)


def test_other_advantages_than_the_rewards_give_are_found(
    bandit_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that is wrong trains on what it stores, so the weights alone say nothing."""
    with monkeypatch.context() as wrong:
        wrong.setattr(Grpo, "normalised", lambda self, rewards_N: rewards_N - 0.5)
        run_recipe(audited(bandit_policy, 1), tmp_path / "run", resume=False, fresh=False, quiet=True)
    report = audit(tmp_path / "run")
    assert [finding.kind for finding in report.findings] == ["other_credit"]
    assert report.replay_identical


def test_a_run_without_receipts_is_not_taken_for_a_sound_one(recorded_run: Path, tmp_path: Path) -> None:
    run_dir = altered(recorded_run, tmp_path, "trainer", list.clear)
    report = audit(run_dir)
    assert (report.replay_identical, report.train_steps) == (False, 0)
    assert report.lost == STEPS * 2 * 8  # the ledger says trained, and nobody else does


def test_a_lost_rollout_is_found(recorded_run: Path, tmp_path: Path) -> None:
    def one_more(receipts: Receipts) -> None:
        appending = next(one for one in of_type(receipts, "appending") if one["purpose"] == Purpose.TRAIN)
        appended = next(one for one in of_type(receipts, "appended") if one["rollout_id"] == appending["rollout_id"])
        receipts += [one | {"rollout_id": 999_999} for one in (appending, appended)]

    report = audit(altered(recorded_run, tmp_path, "worker", one_more))
    assert [finding.kind for finding in report.findings] == ["lost"]
    assert (report.lost, report.replay_identical) == (1, True)


def test_a_group_trained_twice_is_found(recorded_run: Path, tmp_path: Path) -> None:
    def again(receipts: Receipts) -> None:
        first, second, _ = of_type(receipts, "committing")
        second["groups"].append(first["groups"][0])

    report = audit(altered(recorded_run, tmp_path, "trainer", again))
    assert (report.trained_twice, report.replay_identical) == (8, False)


def test_a_group_left_out_is_found(recorded_run: Path, tmp_path: Path) -> None:
    report = audit(
        altered(recorded_run, tmp_path, "trainer", lambda receipts: of_type(receipts, "committing")[1]["groups"].pop())
    )
    assert (report.lost, report.replay_identical) == (8, False)


def test_trajectory_without_a_worker_receipt_is_found(recorded_run: Path, tmp_path: Path) -> None:
    def forget(receipts: Receipts) -> None:
        for receipt in of_type(receipts, "appending"):
            receipt["digest"] = "0" * 64

    report = audit(altered(recorded_run, tmp_path, "worker", forget))
    assert {finding.kind for finding in report.findings} == {"invented"}


def test_training_on_a_refused_trajectory_is_found(recorded_run: Path, tmp_path: Path) -> None:
    def refuse(receipts: Receipts) -> None:
        for receipt in of_type(receipts, "appended"):
            receipt["outcome"] = "superseded"

    report = audit(altered(recorded_run, tmp_path, "worker", refuse))
    assert {finding.kind for finding in report.findings} == {"invented"}


def test_a_committed_step_that_is_gone_is_found(recorded_run: Path, tmp_path: Path) -> None:
    def another(receipts: Receipts) -> None:
        receipts.append(of_type(receipts, "committed")[-1] | {"batch_id": 77, "train_step": STEPS + 1})

    report = audit(altered(recorded_run, tmp_path, "trainer", another))
    assert [finding.kind for finding in report.findings] == ["vanished"]


class Twofold(LatestLoop):
    """Play one episode, and return it as two parts with different rewards."""

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        (played,) = await super().run(task, env, models, limits)
        other = structs.replace(played, part="other", rewards={"task": 1.0 - played.reward})
        return [structs.replace(played, part="one"), other]


@pytest.fixture(scope="session")
def twofold_run(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """One train step of an untrained policy: both rewards are in every group, whatever it does."""

    def make(folder: Path) -> None:
        make_policy(["click left [1]"], folder / "policy", vocab_size=600, hidden_size=32, num_layers=1, num_heads=2)
        recipe = audited(folder / "policy", 1, rollout={"loop": "test_audit:Twofold"})
        run_recipe(recipe, folder / "run", resume=False, fresh=False, quiet=True)

    return made_once("twofold", make) / "run"


def test_two_parts_of_one_policy_and_rollout_are_audited(twofold_run: Path) -> None:
    report = audit(twofold_run)
    assert (report.findings, report.replay_identical) == ([], True)
    assert (report.trained, report.train_steps) == (2 * 2 * 8, 1)


def test_a_damaged_checkpoint_ends_only_its_own_check(twofold_run: Path, tmp_path: Path) -> None:
    def another(receipts: Receipts) -> None:
        receipts.append(of_type(receipts, "committed")[-1] | {"batch_id": 77, "train_step": 2})

    run_dir = altered(twofold_run, tmp_path, "trainer", another)
    (state,) = (run_dir / "trainer").glob("step_000001_*/state.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    report = audit(run_dir)
    assert [finding.kind for finding in report.findings] == ["vanished", "not_audited"]
    assert str(state.parent) in report.findings[1].what
    assert (report.replay_identical, report.train_steps) == (False, 1)


def test_without_the_runs_device_all_but_the_weights_is_audited(recorded_run: Path, tmp_path: Path) -> None:
    run_dir = altered(recorded_run, tmp_path, "trainer", lambda receipts: None)
    config = run_dir / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', f'device = "cuda:{torch.cuda.device_count()}"'))
    report = audit(run_dir)
    assert [finding.kind for finding in report.findings] == ["not_audited"]
    assert f"lacks cuda:{torch.cuda.device_count()}" in report.findings[0].what
    assert (report.replay_identical, report.train_steps, report.over_lag) == (False, STEPS, 0)


def test_weights_that_differ_from_the_replay_are_found(recorded_run: Path, tmp_path: Path) -> None:
    def other_weights(receipts: Receipts) -> None:
        of_type(receipts, "committing")[-1]["weights"] = "0" * 64

    report = audit(altered(recorded_run, tmp_path, "trainer", other_weights))
    assert not report.replay_identical


def test_tokens_over_the_lag_bound_are_counted_independently_of_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [GroupMember(rollout_id=index, trajectory=made_up(index, reward=float(index))) for index in range(2)]
    groups = [Group(group_id=1, task=TASK, members=members)]
    batch = Batch(batch_id=1, attempt=1, train_step=4, start_version=3, groups=groups)
    assert tokens_over_lag(batch, max_lag=2) == 0
    monkeypatch.setattr(retrace, "pack_batch", lambda batch, max_lag: pack_batch(batch, 99))
    assert tokens_over_lag(batch, max_lag=2) == 2 * 3
