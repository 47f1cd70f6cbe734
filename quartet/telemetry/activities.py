"""What a span can be: every activity, declared once, with the colour it has in every picture of a run.

Waiting is pale, so that work stands out: a timeline shows at a glance where nobody does anything. The colours are Okabe
and Ito's, told apart by the colour-blind; what is alike has the same hue.
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


_SHADE, _PALE = "#e9ecef", "#d5dae0"
_MODEL, _WORLD, _DATA, _LEARN, _WEIGHTS, _RECORDS = "#0072b2", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#8c7a00"

ACTIVITIES: dict[str, Activity] = {
    activity.name: activity
    for activity in (
        Activity(WAIT, "nothing to do but wait; `reason` says what for", _PALE),
        Activity("rollout", "one attempt at a task, from reset to the ledger", _SHADE, encloses=True),
        Activity("reset", "the environment gets a task ready", "#5fc9a8"),
        Activity("generate", "a request to the engine, from sending it to its answer", _MODEL),
        Activity("step", "an action in the environment", _WORLD),
        Activity("append", "the trajectory goes into the ledger", _RECORDS),
        Activity("serve", "the engine has requests in work", _MODEL),
        Activity("answer", "one of these requests, from its arrival to its answer", "#5aa9d6"),
        Activity("prove", "a new policy is read and proven, beside decoding", "#e5b9d2"),
        Activity("swap", "decoding stands still: new weights go in", _WEIGHTS),
        Activity("admit", "groups are picked and admitted", _DATA),
        Activity("judge", "a closed group is filtered", "#1c6f9e"),
        Activity("train_step", "one batch, from claim to commit", _SHADE, encloses=True),
        Activity("claim", "a batch is claimed", _DATA),
        Activity("pack", "trajectories become tensors", "#f0a070"),
        Activity("credit", "each token gets its advantage, return and mask", "#e69f00"),
        Activity("old_logprobs", "a pass for the log-probs of the weights the step starts from", "#e69f00"),
        Activity("update", "forward, backward, optimizer steps", _LEARN),
        Activity("publish", "policy and checkpoint go to disk", _WEIGHTS),
        Activity("commit", "the ledger makes the train step final", _RECORDS),
    )
}


def shown_activity(name: str) -> Activity:
    """The declaration, or a bare one: a copied run, or one of another Quartet, may name anything."""
    return ACTIVITIES.get(name) or Activity(name, "", _RECORDS)


def activity(name: str) -> Activity:
    """The declaration of `name`. Raises `ConfigError` that suggests the nearest one."""
    if name not in ACTIVITIES:
        raise ConfigError(
            f"activity {name!r} is not declared. {nearest(name, ACTIVITIES)}",
            "declare its meaning and colour in quartet/telemetry/activities.py",
        )
    return ACTIVITIES[name]
