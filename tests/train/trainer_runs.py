"""Runs whose trainer is called step by step, and groups to feed it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from msgspec.structs import replace
from tiny_batches import make_call, make_model, make_tokenizer, make_trajectory

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.policy.save import save_policy
from quartet.policy.weights import read_weights
from quartet.telemetry.presence import Presence, ReportSink
from quartet.telemetry.record import Recorder
from quartet.train.trainer import Trainer
from quartet.types import ReplayRule, RolloutPlan, Trajectory
from quartet.types.plan import Round

RecipeBuilder = Callable[..., Recipe]
TRAIN = {"groups_per_batch": 2, "learning_rate": 0.01, "minibatches": 2}
ACTOR_CRITIC = {"credit": "gae", "loss": {"terms": ["ppo_clip", "value"]}}
ROUNDED = {"train": TRAIN | {"publish_dtype": "bfloat16"}}
ADAPTER = {"lora": {"rank": 2}, "loss": {"terms": ["ppo_clip", "kl"]}}
MERGED = {"lora": {"rank": 2, "publish": "merged"}}
FULL = {"durability": "full"}


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


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


def trained(run: Run, steps: int) -> Trainer:
    trainer = run.trainer()
    for version in range(steps):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    return trainer
