"""What a span can be: every activity, declared once, with the colour it has in every picture of a run.

Waiting is pale, so that work stands out: a timeline shows at a glance where no module works. The hues are Okabe and
Ito's, told apart by the colour-blind; what is alike has the same hue.
"""

from msgspec import Struct

from quartet.errors import ConfigError, nearest

WAIT = "wait"


class Activity(Struct, frozen=True):
    """One kind of span."""

    name: str
    meaning: str
    colour: str
    """Hexadecimal."""
    encloses: bool = False
    """It lies behind the spans of which it consists."""


ACTIVITIES: dict[str, Activity] = {
    activity.name: activity
    for activity in (
        Activity(WAIT, "nothing to do but wait; `reason` says what for", "#d5dae0"),
        Activity("rollout", "one attempt at a task, from reset to the ledger", "#e9ecef", encloses=True),
        Activity("reset", "the environment gets a task ready", "#5fc9a8"),
        Activity("generate", "a request to the engine, from sending it to its answer", "#0072b2"),
        Activity("step", "an action in the environment", "#009e73"),
        Activity("snapshot", "the environment stores its state for forked rollouts", "#2f7f6a"),
        Activity("append", "the trajectory goes into the ledger", "#8c7a00"),
        Activity("serve", "the engine has requests in work", "#004c7a"),
        Activity("answer", "one of these requests, from its arrival to its answer", "#5aa9d6"),
        Activity("prove", "a new policy is read and proven, beside decoding", "#e5b9d2"),
        Activity("swap", "decoding stands still: new weights go in", "#cc79a7"),
        Activity("admit", "groups are picked and admitted", "#8f7fd6"),
        Activity("judge", "a closed group is filtered", "#5b4bb0"),
        Activity("train_step", "one batch, from claim to commit", "#e2e6ea", encloses=True),
        Activity("claim", "a batch is claimed", "#b9aeea"),
        Activity("pack", "trajectories become tensors", "#f0a070"),
        Activity("credit", "each token gets its advantage, return and mask", "#e69f00"),
        Activity("old_logprobs", "a pass for the log-probs of the weights the step starts from", "#f0d24a"),
        Activity("update", "forward, backward, optimizer steps", "#d55e00"),
        Activity("publish", "policy and checkpoint go to disk", "#9b4a78"),
        Activity("commit", "the ledger makes the train step final", "#b8a83a"),
    )
}
"""Hues go together: blue is the model, green the environment, violet the data manager, orange and yellow learning, pink
weights, olive the ledger. No two activities share a colour."""
_UNKNOWN = "#777777"


def shown_activity(name: str) -> Activity:
    """Return the declaration, or a bare one: a copied run, or one of another Quartet, may name anything."""
    return ACTIVITIES.get(name) or Activity(name, "", _UNKNOWN)


def activity(name: str) -> Activity:
    """The declaration of `name`. Raises `ConfigError` that suggests the nearest one."""
    if name not in ACTIVITIES:
        raise ConfigError(
            f"activity {name!r} is not declared. {nearest(name, ACTIVITIES)}",
            "declare its meaning and colour in quartet/telemetry/activities.py",
        )
    return ACTIVITIES[name]
