"""Recipe of a run: all sections, and the constraints between them."""

from typing import Literal

from pydantic import model_validator

from quartet.config.choice import SeveralOf
from quartet.config.control import Admission, Control
from quartet.config.curation import Filter, Replay
from quartet.config.placement import Placement
from quartet.config.policies import ONE, Policies, PolicySource
from quartet.config.rollouts import Engine, Env, Model, Rollout
from quartet.config.running import Disk, Evaluation, Ledger, Observe, Runtime
from quartet.config.section import FolderName, Section
from quartet.config.stragglers import Straggler
from quartet.config.training import Credit, Critic, Lora, Loss, Publisher, Reference, Sft, Train


class Recipe(Section):
    """Recipe of one run."""

    config_version: Literal[4] = 4
    """Version of the recipe's format. `quartet.recipe.upgrade` converts older versions."""
    name: FolderName
    """Name of the run; its folder is `runs/NAME` by default."""
    seed: int = 0
    """Seed of all random draws: tasks, samples, and newly made weights."""
    plugins: list[str] = []
    """Modules that every process of the run imports before it looks up parts, so that they can register parts."""
    model: Model
    policies: Policies = {}
    """Several policies in one run, by name."""
    env: Env
    rollout: Rollout = Rollout()
    engine: Engine = Engine()
    control: Control = Control()
    admission: Admission = Admission()
    straggler: Straggler = Straggler()
    filters: SeveralOf[Filter] = [Filter(name="mixed_outcome")]
    """Filters applied in order to every closed group."""
    train: Train = Train()
    lora: Lora = Lora()
    publisher: Publisher = Publisher()
    credit: Credit = Credit()
    critic: Critic = Critic()
    loss: Loss = Loss()
    reference: Reference = Reference()
    replay: Replay = Replay()
    evaluation: Evaluation = Evaluation()
    observe: Observe = Observe()
    disk: Disk = Disk()
    ledger: Ledger = Ledger()
    runtime: Runtime = Runtime()
    placement: Placement = Placement()
    sft: Sft = Sft()

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.control.rollouts_per_group < self.admission.min_rollouts_per_group:
            raise ValueError(
                f"control.rollouts_per_group = {self.control.rollouts_per_group} is smaller than "
                f"admission.min_rollouts_per_group = {self.admission.min_rollouts_per_group}"
                " -> raise the first, or lower the second"
            )
        if self.control.train_seeds_per_family > self.evaluation.first_seed:
            raise ValueError("training seeds overlap the held-out seeds -> raise evaluation.first_seed")
        if self.observe.sinks and self.runtime.kind == "synchronous":
            raise ValueError(
                "observe.sinks need runtime.kind = 'processes' or 'ray' -> set it, or use `quartet sink` after the run"
            )
        if self.train.target_success is not None and not self.evaluation.train_steps_per_evaluation:
            raise ValueError(
                "train.target_success is compared with evaluations during training, and there are none"
                " -> set evaluation.train_steps_per_evaluation, or no target: --set train.target_success=null"
            )
        if self.evaluation.min_tokens > self.rollout.max_tokens:
            raise ValueError("evaluation.min_tokens is larger than rollout.max_tokens -> lower the first")
        return self

    @model_validator(mode="after")
    def _a_response_leaves_room_for_its_prompt(self) -> "Recipe":
        response, context = self.rollout.max_tokens, self.engine.max_context_tokens
        if response >= context:
            raise ValueError(
                f"rollout.max_tokens = {response} leaves no room for a prompt in engine.max_context_tokens = {context}"
                " -> lower the first, or raise the second up to the model's limit"
            )
        return self

    @model_validator(mode="after")
    def _old_tokens_are_allowed(self) -> "Recipe":
        admission = self.admission
        if admission.schedule == "one_step_off" and admission.max_lag < 1:
            raise ValueError(
                "admission.schedule one_step_off trains tokens with a lag of 1 -> set admission.max_lag to at least 1"
            )
        return self

    @model_validator(mode="after")
    def _engines_can_be_placed(self) -> "Recipe":
        if self.engine.replicas > 1 and self.runtime.kind == "synchronous":
            raise ValueError("engine.replicas above 1 needs runtime.kind = 'processes' or 'ray' -> set it")
        if self.engine.replicas_beside_trainer >= self.engine.replicas:
            raise ValueError(
                "while the trainer computes, no engine would serve -> set engine.replicas above "
                f"engine.replicas_beside_trainer = {self.engine.replicas_beside_trainer}"
            )
        if self.engine.replicas > 1 and self.runtime.engine_port:
            raise ValueError("several engines cannot listen on runtime.engine_port -> set it to 0 for any free ports")
        return self

    @model_validator(mode="after")
    def _ranks_can_be_placed(self) -> "Recipe":
        if self.train.nodes > 1 and self.runtime.kind != "ray":
            raise ValueError('train.nodes above 1 needs runtime.kind = "ray" -> set it, or start the ranks by torchrun')
        return self

    @model_validator(mode="after")
    def _workers_and_hosts_can_be_placed(self) -> "Recipe":
        if max(self.rollout.workers, self.env.hosts) > 1 and self.runtime.kind == "synchronous":
            raise ValueError("rollout.workers and env.hosts above 1 need runtime.kind = 'processes' or 'ray' -> set it")
        if self.env.hosts > 1 and self.runtime.env_port:
            raise ValueError(
                "several environment hosts cannot listen on runtime.env_port -> set it to 0 for any free ports"
            )
        return self

    @model_validator(mode="after")
    def _several_policies_can_be_placed(self) -> "Recipe":
        if len(self.policies) > 1 and self.runtime.kind == "synchronous":
            raise ValueError("several policies need runtime.kind = 'processes' or 'ray' -> set it")
        if len(self.trained_policies) > 1 and self.straggler.name == "april":
            raise ValueError("the straggler rule april pauses the rollouts of one policy only -> choose another rule")
        return self

    @property
    def policy_sources(self) -> dict[str, PolicySource]:
        """All policies of the run by name, each with the folder of its initial weights."""
        tables = self.policies or ONE
        return {name: one.model_copy(update={"source": one.source or self.model.path}) for name, one in tables.items()}

    @property
    def trained_policies(self) -> list[str]:
        """Names of the trained policies; control and evaluations use the first."""
        return [name for name, one in self.policy_sources.items() if one.trained]

    @property
    def frozen_policies(self) -> list[str]:
        """Names of the frozen policies, which only answer requests."""
        return [name for name, one in self.policy_sources.items() if not one.trained]

    def starting_from(self, folder: str) -> "Recipe":
        """Return the recipe with other initial weights of its first trained policy."""
        if not self.policies:
            return self.model_copy(update={"model": self.model.model_copy(update={"path": folder})})
        first = self.trained_policies[0]
        other = self.policies[first].model_copy(update={"source": folder})
        return self.model_copy(update={"policies": self.policies | {first: other}})

    @property
    def rollouts_per_batch(self) -> int:
        """Number of rollouts per batch: groups per batch x rollouts per group."""
        return self.train.groups_per_batch * self.control.rollouts_per_group

    @property
    def max_groups_ahead(self) -> int:
        """Maximum number of groups that are admitted and neither trained nor dropped yet: batches x groups per batch.

        The number of batches is 1 if generation and training alternate, 2 if one batch is generated while another is
        trained, otherwise max_lag + 1.
        """
        batches = {"batch_synchronous": 1, "one_step_off": 2}.get(self.admission.schedule, self.admission.max_lag + 1)
        return batches * self.train.groups_per_batch

    @property
    def sessions(self) -> int:
        """Number of environment sessions of the recipe's hosts, without hosts that join a run."""
        return self.env.sessions * self.env.hosts

    @property
    def most_identical_errors(self) -> int:
        """Number of consecutive rollouts with the same error at which the run stops. It is high enough that a single
        crash of the environment, which ends all sessions at once, does not stop the run."""
        return max(self.rollout.max_identical_errors, 2 * self.sessions)

    @property
    def engine_modules(self) -> list[str]:
        """Names of the engine processes: `engine`, `engine-2`, ..."""
        return _numbered("engine", self.engine.replicas)

    @property
    def guest_modules(self) -> list[str]:
        """Names of the engines that share the trainer's device."""
        return self.engine_modules[self.engine.replicas - self.engine.replicas_beside_trainer :]

    @property
    def host_trainer(self) -> str:
        """Name of the trainer process whose device the guests share: the first one."""
        return next(iter(self.trainer_modules))

    @property
    def env_modules(self) -> list[str]:
        """Names of the environment hosts: `env`, `env-2`, ..."""
        return _numbered("env", self.env.hosts)

    @property
    def worker_modules(self) -> list[str]:
        """Names of the rollout workers: `worker`, `worker-2`, ..."""
        return _numbered("worker", self.rollout.workers)

    @property
    def trainer_modules(self) -> dict[str, str]:
        """Trained policy by the name of its trainer process: `trainer` for a single one, otherwise `trainer-NAME`."""
        names = self.trained_policies
        return {f"trainer-{name}": name for name in names} if len(names) > 1 else {"trainer": names[0]}

    @property
    def serving_modules(self) -> list[str]:
        """Names of the module processes that an evaluation needs; training needs the trainers in addition."""
        return [*self.env_modules, *self.engine_modules, *self.worker_modules, "manager"]

    @property
    def modules(self) -> list[str]:
        """Names of all module processes that training starts."""
        sinks = [f"sink-{sink.name}" for sink in self.observe.sinks]
        return [*self.serving_modules, *self.trainer_modules, *sinks]


def _numbered(role: str, count: int) -> list[str]:
    return [role, *(f"{role}-{number}" for number in range(2, count + 1))]


RESUMABLE_SETTINGS = (
    "train.max_train_steps",
    "train.max_rollouts",
    "train.target_success",
    "train.max_seconds",
    "train.learning_rate",
    "train.max_tokens_per_microbatch",
    "train.processes",
    "train.nodes",
    "train.device",
    "train.activation_checkpointing",
    "train.offload_optimizer",
    "train.train_steps_per_checkpoint",
    "train.starved_timeout_seconds",
    "env.sessions",
    "env.hosts",
    "env.step_timeout_seconds",
    "env.reset_timeout_seconds",
    "env.start_timeout_seconds",
    "env.session_memory_megabytes",
    "rollout.workers",
    "rollout.lease_seconds",
    "rollout.episode_timeout_seconds",
    "rollout.max_identical_errors",
    "evaluation.train_steps_per_evaluation",
    "evaluation.episodes_per_family_during",
    "evaluation.supervised_control",
    "publisher",
    "replay.demonstrations",
    "observe",
    "disk",
    "runtime",
    "placement",
    "engine",
)
"""Settings that may change at `--resume`. A change of another setting is an error, since the run would mix two
recipes."""
