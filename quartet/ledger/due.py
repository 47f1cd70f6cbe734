"""`admission.on_late = "wait"`: which unfinished groups a train step has to wait for, because of what it makes of them.

Every train step makes all tokens one version older, so a group whose oldest token has a lag of l may be in this train
step or in one of the `max_lag - l` after it. Trainable groups are taken oldest first, `groups_per_batch` per step. So
all come in time just when, for every lag, the groups as old as that or older fit into the steps that they may still be
in: the demand bound of earliest-deadline-first scheduling, for jobs of one size.

Liveness: only unfinished groups are waited for; each ends by its deadline at the latest, and no new one becomes as old
as they are, since a group is admitted at the version that the engine serves, which only a roll-back lowers.
"""

from collections.abc import Sequence


def due_groups(trainable: Sequence[int], unfinished: Sequence[int], *, groups_per_batch: int, max_lag: int) -> int:
    """Return how many unfinished groups have to end before `groups_per_batch` of the trainable ones may be trained.

    Both hold the largest lag of each group, at the version that the train step starts from; `trainable` begins with
    the oldest, and that of an unfinished group is an upper bound. Groups that are too old already are not waited for.
    """
    newest_taken = trainable[groups_per_batch - 1]
    waiting = 0
    # Waiting helps only groups older than one that is taken now: they would take its place.
    helped = (lag for lag in unfinished if newest_taken < lag <= max_lag)
    for ahead, lag in enumerate(sorted(helped, reverse=True), start=1):
        waiting = max(waiting, ahead - (max_lag - lag) * groups_per_batch)
    return waiting
