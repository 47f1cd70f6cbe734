"""`admission.on_late = "wait"`: which unfinished groups a train step has to wait for, because of what it makes of them.

Every train step makes the next policy version, so a group whose oldest token is of version o must be in one of the
train steps that start from o + max_lag or earlier. Trainable groups are taken oldest first, `groups_per_batch` per
step. So all come in time just when, for every version, the groups as old as it or older fit into the steps that they
may still be in: the demand bound of earliest-deadline-first scheduling, for jobs of one size.

Liveness: only unfinished groups are waited for; each ends by its deadline at the latest, and no new one becomes as old
as they are, since a group is admitted at the version that the engine serves, which only a roll-back lowers.
"""

from collections.abc import Sequence


def due_groups(
    trainable: Sequence[int],
    unfinished: Sequence[int],
    *,
    groups_per_batch: int,
    start_version: int,
    next_version: int,
    max_lag: int,
) -> int:
    """How many unfinished groups have to end before `groups_per_batch` of the trainable ones may be trained.

    Both hold the oldest version of each group, a lower bound for unfinished ones; `trainable` is ascending.
    The train step starts from `start_version` and would publish `next_version`, the next one but after a roll-back.
    Groups that are too old for it already are not waited for.
    """
    newest_taken = trainable[groups_per_batch - 1]
    waiting = 0
    # Waiting helps only groups older than one that is taken now: they would take its place.
    helped = (version for version in unfinished if start_version - max_lag <= version < newest_taken)
    for ahead, version in enumerate(sorted(helped), start=1):
        train_steps = max(0, version + max_lag - next_version + 1)
        waiting = max(waiting, ahead - train_steps * groups_per_batch)
    return waiting
