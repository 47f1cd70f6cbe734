"""Activities: all kinds of spans, each with its meaning and the colour that every picture of a run uses for it.

Waits are pale, so that idle time is visible at a glance. The hues are those of Okabe and Ito, which colour-blind
readers can distinguish. Similar activities have similar hues.
"""

from msgspec import Struct

from quartet.errors import ConfigError, nearest

WAIT = "wait"


class Activity(Struct, frozen=True):
    """One kind of span."""

    name: str
    meaning: str
    colour: str
    """Colour in hexadecimal."""
    encloses: bool = False
    """True if spans of the activity enclose other spans; they are drawn in the background."""


ACTIVITIES: dict[str, Activity] = {
    activity.name: activity
    for activity in (
        Activity(WAIT, "wait; `reason` names what it waits for", "#d5dae0"),
        Activity("rollout", "one attempt at a task, from reset to its record in the ledger", "#e9ecef", encloses=True),
        Activity("reset", "reset of the environment to a task", "#5fc9a8"),
        Activity("generate", "request to the engine, until its response", "#0072b2"),
        Activity("step", "action in the environment", "#009e73"),
        Activity("snapshot", "storing of the environment's state for forks", "#2f7f6a"),
        Activity("append", "writing of the trajectory to the ledger", "#8c7a00"),
        Activity("serve", "time in which the engine has requests", "#004c7a"),
        Activity("answer", "one request in the engine, until its response", "#5aa9d6"),
        Activity("prove", "reading and verifying a new policy, while decoding continues", "#e5b9d2"),
        Activity("swap", "pause of decoding to load new weights", "#cc79a7"),
        Activity("admit", "selection and admission of groups", "#8f7fd6"),
        Activity("judge", "filtering of a closed group", "#5b4bb0"),
        Activity("train_step", "one batch, from its claim until its weights are copied", "#e2e6ea", encloses=True),
        Activity("claim", "claim of a batch", "#b9aeea"),
        Activity("pack", "joining of the trajectories' calls into training sequences", "#f0a070"),
        Activity("credit", "assignment of advantage, return and mask to each token", "#e69f00"),
        Activity(
            "old_logprobs",
            "microbatches, and forward passes under the weights at the step's start and under a reference",
            "#f0d24a",
        ),
        Activity("update", "forward, backward and optimizer steps", "#d55e00"),
        Activity("publish", "waiting for the previous policy's files, and copying of the weights", "#9b4a78"),
        Activity("write_policy", "writing of the copied weights to disk, while the next batch is trained", "#d9a3c4"),
        Activity("copy_state", "waiting for the previous checkpoint, and copying of the trainer's state", "#7a2f5c"),
        Activity("checkpoint", "writing of the copied state to disk, while later steps are trained", "#c9a0b4"),
        Activity("commit", "commit of the train step in the ledger", "#b8a83a"),
    )
}
"""Activities by name. Hues: blue for the model, green for the environment, violet for the data manager, orange and
yellow for learning, pink for weights, olive for the ledger. No two activities have the same colour."""
_UNKNOWN = "#777777"


def shown_activity(name: str) -> Activity:
    """Return the declaration of `name`; if there is none, a declaration without a meaning.

    The run may be of another version of Quartet, with other activities.
    """
    return ACTIVITIES.get(name) or Activity(name, "", _UNKNOWN)


def activity(name: str) -> Activity:
    """Return the declaration of `name`. Raises `ConfigError`, which suggests the nearest name, if there is none."""
    if name not in ACTIVITIES:
        raise ConfigError(
            f"activity {name!r} is not declared. {nearest(name, ACTIVITIES)}",
            "declare its meaning and colour in quartet/telemetry/activities.py",
        )
    return ACTIVITIES[name]
