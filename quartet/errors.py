"""Errors people are meant to read: what happened, where, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class QuartetError(Exception):
    """Base of every error that ends a command. `advice` says what to do next."""

    exit_code = 1
    """Exit status of the command that it ends."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what if not advice else f"{what}\n  -> {advice}")
        self.what = what
        self.advice = advice


class ConfigError(QuartetError):
    """A recipe, an override or an argument is wrong."""

    exit_code = 2


class EnvError(QuartetError):
    """An environment failed: infrastructure, never the policy's doing."""


class EnvFaultError(EnvError):
    """The environment's code raised an exception, or answered with something that is no answer."""

    def __init__(self, what: str, traceback: str = "") -> None:
        super().__init__(what)
        self.traceback = traceback


class RewardError(QuartetError):
    """The reward of an episode could not be computed, or is no finite number. An environment raises it when its reward
    function fails: the rollout is retried, and never counts as a reward of 0."""


class EngineError(QuartetError):
    """An engine failed or answered nonsense: infrastructure, never the policy's doing."""


class EngineUnreachableError(EngineError):
    """No engine answers at its address, or it has none yet: the request itself may be fine."""


class WrongAnswerError(EngineError):
    """An engine's answer cannot be a sample of its policy: what was told of it before its end counts for nothing."""


class PromptTooLongError(EngineError):
    """The prompt does not fit the model's context."""


class RefusedRequestError(EngineError):
    """A request to an engine makes no sense: no retry will help."""


class RecalledError(QuartetError):
    """A rollout was told to stop: it rests, or nobody waits for it any more. What it has sampled is kept."""


class DivergedError(QuartetError):
    """A child was not shown what its parent was shown, although it did the same: it does not share what it borrows."""


class LedgerError(QuartetError):
    """The ledger is damaged, too new, or was asked for an impossible transition."""


class LedgerUnreachableError(LedgerError):
    """The database server does not answer, or ended the connection. What was in progress may be committed, or not."""

    exit_code = 5


class LeaseLostError(LedgerError):
    """The lease expired and was given to somebody else; the late work is recorded as `superseded`."""


class RecordsError(QuartetError):
    """A run's metrics or spans cannot be read."""


class CheckpointError(QuartetError):
    """A policy or trainer checkpoint is missing or damaged."""


class UnusablePolicyError(CheckpointError):
    """None of a run's policies can be loaded, or gone on from. Trying again at once does not help."""

    exit_code = 7


class SetupError(QuartetError):
    """The machine lacks something: a browser, a free port, disk space. Trying again at once does not help."""

    exit_code = 4


class RepeatedErrorError(QuartetError):
    """The newest rollouts all failed with the same error."""


class StarvedError(QuartetError):
    """The trainer had nothing to train for longer than the recipe allows."""

    exit_code = 3


class UntrainableError(QuartetError):
    """The train steps of several batches in a row failed: the cause is not in their data."""

    exit_code = 6


class InterruptedByUser(QuartetError):  # noqa: N818  (it is no fault)
    """Ctrl-C, SIGTERM or `quartet stop`."""

    exit_code = 130


LONGEST_QUOTE = 100
"""Characters of a line or an override that an error repeats."""


def shortened(text: str) -> str:
    """Return the text as an error repeats it: its beginning, when it is long."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint like ` Did you mean 'uniform'?`, or the list of known names when nothing is close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."


EXIT_CODES = {
    0: "done",
    1: "failed, or a check found something; the message says what to do",
    2: "wrong usage, of the command or in the recipe",
    3: "starved: there was nothing to train",
    4: "the machine lacks something",
    5: "the ledger's server does not answer",
    6: "no batch could be trained; the message says why",
    7: "no policy of the run can be loaded, or none with a whole checkpoint",
    130: "stopped by the user",
}
"""What a command ends with, and what that means."""
