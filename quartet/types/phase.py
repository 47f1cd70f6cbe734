"""The phases of a run, by their names in the ledger.

    starting -> evaluating before -> [starting] -> training -> stopping -> evaluating after 12 -> ended -> finished

A run enters `starting` whenever a phase needs modules that are not up yet, also after a resume. The training clock runs
and the data manager admits groups only in `training`.
"""

STARTING, TRAINING, STOPPING, ENDED, FINISHED = "starting", "training", "stopping", "ended", "finished"
"""In `stopping`, training is over, the trainer receives the request to end, and unfinished rollouts are cancelled. In
`finished`, the supervised control and the summary are written too; a run that was killed before that has work left."""
EVALUATING = "evaluating "
"""Prefix of the phase name of an evaluation. The rest of the name is the prefix of the evaluation's tags."""
_EVALUATION = ("the evaluation", "its last episode ends")
_FIRST_WORK = ("the first work of training", "it arrives")
_WAITS = {
    STARTING: ("the start of all modules", "the last one is up"),
    STOPPING: ("the end of training", "the trainer has ended"),
    ENDED: ("the end of the run", "the supervisor ends the modules"),
}


def wait_in(phase: str, waiting_for: str, ends_when: str) -> tuple[str, str]:
    """Return what an idle module waits for in `phase`, and the event that ends the wait.

    Training and unknown phases return the two arguments.
    """
    if phase.startswith(EVALUATING):
        return _EVALUATION
    return _WAITS.get(phase, (waiting_for, ends_when))


def wait_now(phase: str, waiting_for: str, ends_when: str) -> tuple[str, str]:
    """Correct a reported wait that may predate the current phase: modules report once a second.

    A wait for the end of training is also valid in the last seconds of training.
    """
    of_phase = waiting_for in {_EVALUATION[0], *(what for what, _ in _WAITS.values())}
    if not of_phase or (phase == TRAINING and waiting_for == _WAITS[STOPPING][0]):
        return waiting_for, ends_when
    return wait_in(phase, *(_FIRST_WORK if phase == TRAINING else (waiting_for, ends_when)))
