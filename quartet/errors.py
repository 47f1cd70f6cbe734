"""Errors shown to the user. An error states what happened, where, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches

_ADVICE = "\n  -> "


def in_a_sentence(text: str) -> str:
    """Return an error's text with its advice in the same line, to quote it where another advice follows.

    >>> in_a_sentence("port 80 is in use\\n  -> choose another one")
    'port 80 is in use; choose another one'
    """
    return text.replace(_ADVICE, "; ")


class QuartetError(Exception):
    """Base of Quartet's errors. `advice` states what to do next. If `what` quotes an error with advice of its own, that
    advice is part of the sentence."""

    exit_code = 1
    """Exit status of a command that the error ends."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what, advice)
        self.what = in_a_sentence(what) if advice else what
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.what}{_ADVICE}{self.advice}" if self.advice else self.what


class ConfigError(QuartetError):
    """A recipe, an override or an argument is wrong."""

    exit_code = 2


class EnvError(QuartetError):
    """An environment failed: an infrastructure error, not an error of the policy."""


class EnvFaultError(EnvError):
    """The environment's code raised an exception or returned an invalid result."""

    def __init__(self, what: str, traceback: str = "") -> None:
        super().__init__(what)
        self.traceback = traceback


class ExpertError(QuartetError):
    """The page lacks an element that a scripted expert needs: the observation, the expert or an earlier action is
    wrong."""


class RewardError(QuartetError):
    """The reward of an episode could not be computed or is not finite. Environments raise it when their reward function
    fails; the rollout is retried and never counts as a reward of 0."""


class EngineError(QuartetError):
    """An engine failed or sent an invalid response: an infrastructure error, not an error of the policy."""


class EngineUnreachableError(EngineError):
    """An engine does not answer at its address, or has no address yet. The request may be valid."""


class WrongAnswerError(EngineError):
    """An engine's response cannot be a sample of its policy; tokens streamed before its end are discarded."""


class PromptTooLongError(EngineError):
    """The prompt does not fit the model's context."""


class RefusedRequestError(EngineError):
    """A request to an engine is invalid; a retry will not help."""


class PictureTooLargeError(EnvError):
    """A picture of an observation has too many pixels, or one side is too many times as long as the other."""


class PlaceholderMismatchError(RefusedRequestError):
    """The placeholders of a sequence do not match its pictures, so the model would read other pictures or none."""


class GridMismatchError(RefusedRequestError):
    """The patches of a picture do not match its placeholders."""


class PictureMissingError(RefusedRequestError):
    """A prompt refers to a picture that is missing."""


class RecalledError(QuartetError):
    """A rollout was cancelled, or paused by the straggler rule. Its sampled tokens are kept."""


class DivergedError(QuartetError):
    """A forked rollout (child) received other observations than its parent, so it cannot use the parent's calls."""


class LedgerError(QuartetError):
    """The ledger is damaged, too old or too new, or received an invalid request."""


class LedgerUnreachableError(LedgerError):
    """The database server does not answer or closed the connection. A pending transaction may have been committed."""

    exit_code = 5


class LeaseLostError(LedgerError):
    """The lease expired and another process may hold the work; late results are recorded as `superseded`."""


class RecordsError(QuartetError):
    """A run's metrics or spans cannot be read."""


class CheckpointError(QuartetError):
    """A policy or trainer checkpoint is missing or damaged."""


class DeltaError(CheckpointError):
    """A delta of weights is damaged or missing, or does not lead to the weights that it should."""


class BroadcastError(CheckpointError):
    """Weights did not arrive from the trainer's memory, or not as the trainer offered them."""


class UnusablePolicyError(CheckpointError):
    """No policy of the run can be loaded or resumed from. An immediate retry does not help."""

    exit_code = 7


class OutOfMemoryError(QuartetError):
    """Memory ran out while a policy was loaded or computed. Its files may be undamaged, so a retry can help."""


class SetupError(QuartetError):
    """The machine lacks something: a browser, a free port, disk space. An immediate retry does not help."""

    exit_code = 4


class RepeatedErrorError(QuartetError):
    """The newest rollouts all failed with the same error."""


class StarvedError(QuartetError):
    """The trainer had nothing to train for longer than the recipe allows."""

    exit_code = 3


class UntrainableError(QuartetError):
    """The train steps of several batches in a row failed: the cause is not in their data."""

    exit_code = 6


class InterruptedByUser(QuartetError):  # noqa: N818  (not an error)
    """The user stopped the command with Ctrl-C, SIGTERM or `quartet stop`."""

    exit_code = 130


CONTINUE = "continue with --resume"
"""Advice of errors that end a run. Each command completes or replaces it."""
LONGEST_QUOTE = 100
"""Maximum number of characters of a line or an override that an error quotes."""


def shortened(text: str) -> str:
    """Return the text for quoting in an error, cut to `LONGEST_QUOTE` characters."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a hint such as `Did you mean 'uniform'?`, or the list of known names if none is as similar as `cutoff`,
    from 0 (no letter) to 1 (equal)."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."


EXIT_CODES = {
    0: "done",
    1: "failed, or a check found something; the message says what to do",
    2: "wrong usage, of the command or in the recipe",
    3: "starved: there was nothing to train",
    4: "the machine lacks something",
    5: "the ledger's server does not answer",
    6: "no batch could be trained; the message says why",
    7: "no policy of the run can be loaded, or none with an undamaged checkpoint",
    130: "stopped by the user",
}
"""Meaning of each exit status of a command."""
