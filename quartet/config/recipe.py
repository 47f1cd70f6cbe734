"""One run, whole: every section, and what must hold between them."""

from typing import Literal

from pydantic import model_validator

from quartet.config.control import Admission, Control
from quartet.config.curation import Filter, Replay
from quartet.config.rollouts import Engine, Env, Model, Rollout
from quartet.config.running import Disk, Evaluation, Ledger, Runtime
from quartet.config.section import Section
from quartet.config.training import Advantage, Loss, Sft, Train


class Recipe(Section):
    """One run, whole."""

    config_version: Literal[1] = 1
    name: str
    seed: int = 0
    model: Model
    env: Env
    rollout: Rollout = Rollout()
    engine: Engine = Engine()
    control: Control = Control()
    admission: Admission = Admission()
    filter: Filter = Filter()
    train: Train = Train()
    advantage: Advantage = Advantage()
    loss: Loss = Loss()
    replay: Replay = Replay()
    evaluation: Evaluation = Evaluation()
    disk: Disk = Disk()
    ledger: Ledger = Ledger()
    runtime: Runtime = Runtime()
    sft: Sft = Sft()

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.control.rollouts_per_group < self.admission.min_rollouts_per_group:
            raise ValueError("control.rollouts_per_group is smaller than admission.min_rollouts_per_group")
        if self.control.train_seeds_per_family > self.evaluation.first_seed:
            raise ValueError("training seeds reach into the held-out seeds: raise evaluation.first_seed")
        if self.control.allocator == "dynamic":
            least, most = self.control.dynamic_rollouts.min_rollouts, self.control.rollouts_per_group
            if not self.admission.min_rollouts_per_group <= least <= most:
                raise ValueError(
                    "control.dynamic_rollouts.min_rollouts must lie between admission.min_rollouts_per_group and "
                    "control.rollouts_per_group"
                )
            if self.control.statistics_window_rollouts < most:
                raise ValueError("control.statistics_window_rollouts is smaller than control.rollouts_per_group")
        return self

    @property
    def rollouts_per_batch(self) -> int:
        """R = G groups x N rollouts."""
        return self.train.groups_per_batch * self.control.rollouts_per_group

    @property
    def max_groups_ahead(self) -> int:
        """Groups that may be open, waiting or in training at once: (max_lag + 1) x groups per batch."""
        return (self.admission.max_lag + 1) * self.train.groups_per_batch


RESUMABLE_KNOBS = (
    "train.max_train_steps",
    "train.max_seconds",
    "train.learning_rate",
    "train.starved_timeout_seconds",
    "env.sessions",
    "env.step_timeout_seconds",
    "rollout.lease_seconds",
    "rollout.episode_timeout_seconds",
    "evaluation.train_steps_per_evaluation",
    "evaluation.episodes_per_family_during",
    "evaluation.control",
    "replay.demonstrations",
    "disk",
    "runtime",
    "engine",
)
"""What may change at `--resume`; every other difference is refused, because it would make one run out of two."""
