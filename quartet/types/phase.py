"""The phases of a run, as the ledger names the one it is in.

    starting -> evaluating before -> [starting] -> training -> stopping -> evaluating after 12 -> ended -> finished

A run starts whenever a phase needs modules that are not up yet, so also when it is resumed. Only while it trains does
the training clock run, and does the data manager admit groups.
"""

STARTING, TRAINING, STOPPING, ENDED, FINISHED = "starting", "training", "stopping", "ended", "finished"
"""`stopping`: training is over, the trainer is told to end and unfinished rollouts are cancelled. `finished`: control
and summary are written too; a run that was killed before has work left."""
EVALUATING = "evaluating "
"""How the name of an evaluation's phase begins; the word after it begins the evaluation's tags."""
_EVALUATION = ("the evaluation", "its last episode ends")
_FIRST_WORK = ("the first work of training", "it arrives")
_WAITS = {
    STARTING: ("the start of all modules", "the last one is up"),
    STOPPING: ("the end of training", "the trainer has ended"),
    ENDED: ("the end of the run", "the supervisor ends the modules"),
}


def wait_in(phase: str, waiting_for: str, ends_when: str) -> tuple[str, str]:
    """What somebody who has nothing to do waits for in `phase`, and what would end it: the given two in training."""
    if phase.startswith(EVALUATING):
        return _EVALUATION
    return _WAITS.get(phase, (waiting_for, ends_when))


def wait_now(phase: str, waiting_for: str, ends_when: str) -> tuple[str, str]:
    """A wait that a module told, as it is in `phase`: it speaks once a second, and may still name the phase before.

    The end of training is also waited for in its last seconds.
    """
    of_phase = waiting_for in {_EVALUATION[0], *(what for what, _ in _WAITS.values())}
    if not of_phase or (phase == TRAINING and waiting_for == _WAITS[STOPPING][0]):
        return waiting_for, ends_when
    return wait_in(phase, *(_FIRST_WORK if phase == TRAINING else (waiting_for, ends_when)))
