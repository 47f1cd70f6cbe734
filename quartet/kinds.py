"""Kinds of parts: where the files of each kind are, and what their classes have in common."""

from collections.abc import Mapping

from msgspec import Struct


class Kind(Struct, frozen=True):
    """A kind of part: classes with one interface, one per file.

    A recipe chooses one part (such as the engine) or several (filters, loss terms, sinks). Checks of `quartet doctor`
    and of `quartet env check` are not chosen: all of them run.
    """

    folder: str
    """Package whose files are the built-in parts."""
    base: str
    """`module:Class` of the interface."""
    question: str
    """The question that parts of this kind answer."""
    module: str = ""
    """The module of a run that uses the part and records its metrics; empty if no module does."""
    functions: str = ""
    """`module:Class` of the part that calls a plain function, for kinds in which `module:function` is a part. The
    function is imported only where it is called, because its module may be large or faulty."""


KINDS: Mapping[str, Kind] = {
    "env": Kind(
        "quartet.env.environment", "quartet.env.base:Environment", "which tasks there are, and where to act", "env"
    ),
    "reward": Kind(
        "quartet.env.rewards",
        "quartet.env.rewards.base:Reward",
        "what a response to a row of a data set is worth",
        "env",
        functions="quartet.env.rewards.function:Function",
    ),
    "engine": Kind(
        "quartet.engine.backend",
        "quartet.engine.backend.base:Backend",
        "what computes responses",
        "engine",
    ),
    "loop": Kind(
        "quartet.rollout.loop", "quartet.rollout.loop.base:AgentLoop", "how observations become prompts", "worker"
    ),
    "action_format": Kind(
        "quartet.actions.format",
        "quartet.actions.format.base:ActionFormat",
        "how responses name actions",
        "worker",
    ),
    "history": Kind(
        "quartet.rollout.history",
        "quartet.rollout.history.base:History",
        "how much of the past a prompt shows",
        "worker",
    ),
    "guidance": Kind(
        "quartet.rollout.guidance",
        "quartet.rollout.guidance.base:Guidance",
        "what advice a guided rollout reads",
        "worker",
    ),
    "brancher": Kind(
        "quartet.rollout.brancher",
        "quartet.rollout.brancher.base:Brancher",
        "where children fork from a running rollout",
        "worker",
    ),
    "dispatch": Kind(
        "quartet.engine.dispatch",
        "quartet.engine.dispatch.base:Dispatch",
        "which engine gets a request",
        "worker",
    ),
    "sampler": Kind(
        "quartet.manager.control.sampler",
        "quartet.manager.control.base:TaskSampler",
        "which task comes next",
        "manager",
    ),
    "allocator": Kind(
        "quartet.manager.control.allocator",
        "quartet.manager.control.base:RolloutAllocator",
        "how many rollouts a group gets",
        "manager",
    ),
    "horizon": Kind(
        "quartet.manager.control.horizon",
        "quartet.manager.control.base:Horizon",
        "how many turns a rollout may take",
        "manager",
    ),
    "straggler": Kind(
        "quartet.manager.straggler",
        "quartet.manager.straggler.base:StragglerRule",
        "what happens to rollouts that take long",
        "manager",
    ),
    "filter": Kind(
        "quartet.manager.filter", "quartet.manager.filter.base:Filter", "what is worth training on", "manager"
    ),
    "replay": Kind(
        "quartet.manager.replay", "quartet.manager.replay.base:Replay", "what is trained on again", "manager"
    ),
    "credit": Kind(
        "quartet.train.credit", "quartet.train.credit.base:Credit", "what each sampled token is worth", "trainer"
    ),
    "critic": Kind(
        "quartet.train.critic", "quartet.train.critic.base:Critic", "what estimates returns for a credit", "trainer"
    ),
    "loss_term": Kind(
        "quartet.train.loss", "quartet.train.loss.base:LossTerm", "what the optimizer minimises", "trainer"
    ),
    "publisher": Kind(
        "quartet.policy.publisher",
        "quartet.policy.publisher.base:Publisher",
        "how new weights reach the engines",
        "engine",
    ),
    "sink": Kind(
        "quartet.report.sinks", "quartet.report.sinks.base:Sink", "where a run is shown besides its folder", "sink"
    ),
    "env_check": Kind("quartet.env.checks", "quartet.env.checks.base:EnvCheck", "what an environment must hold"),
    "doctor": Kind("quartet.doctor", "quartet.doctor.base:Doctor", "what the machine must have"),
}
"""All kinds of parts, by the name that recipes, entry points and `quartet parts` use."""
