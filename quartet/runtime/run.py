"""Implementation of the commands: training runs, evaluation of a policy, and the supervised control."""

import logging
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType

from quartet.config import Recipe
from quartet.die_with import child_command
from quartet.errors import (
    ConfigError,
    InterruptedByUser,
    LedgerUnreachableError,
    QuartetError,
    SetupError,
    StarvedError,
)
from quartet.files.disk import full_disk
from quartet.ledger import Ledger
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.ledger.database.location import trust_server
from quartet.ledger.groups import TRAINING_ENDED
from quartet.ledger.recovery import points_to_go_on_from
from quartet.ledger.results import Results
from quartet.manager.evaluation import EVALUATION_MARKER, is_evaluation
from quartet.policy.files import check_policy
from quartet.report.alarms.rollouts import remedy
from quartet.report.evaluated import after_tag
from quartet.report.recent import newest_error
from quartet.report.summary import Summary, evaluation_summary, save_summary, write_summary
from quartet.run.run_dir import RunLock, prepare
from quartet.runtime.check.notes import print_notes
from quartet.runtime.check.recipe import check_ray, check_recipe
from quartet.runtime.check.training import check_training
from quartet.runtime.dashboard import View, dashboard
from quartet.runtime.evaluations import first_evaluation
from quartet.runtime.finished import mark_finished
from quartet.runtime.session import Session
from quartet.telemetry.log import log_to_file
from quartet.terminal.say import say
from quartet.train.starvation import STARVED
from quartet.types import TOO_FEW_COUNTABLE

LOG = logging.getLogger(__name__)


def run_recipe(
    recipe: Recipe, run_dir: Path, *, resume: bool, fresh: bool, quiet: bool, view: View = "none"
) -> Summary:
    """Run a recipe: evaluate, train, evaluate, train the supervised control, and write the summary.

    After writing the summary, raises `StarvedError` if nothing was trainable, `SetupError` if a full disk ended the
    run, or any other error that ended it.
    """
    check_training(recipe)
    check_ray(recipe)
    print_notes(recipe)
    ANSWER_TIMEOUT.seconds = recipe.runtime.ledger_timeout_seconds
    trust_server(recipe.ledger.url)
    prepare(recipe, run_dir, resume=resume, fresh=fresh)
    log_to_file(run_dir, "supervisor")
    started = time.monotonic()
    if resume:
        forget_stop(run_dir)
        _require_recovery_point(recipe, run_dir)
    with _summary_of_failure(recipe, run_dir, started):
        _train(recipe, run_dir, quiet=quiet, view=view)
    summary = _summarise(recipe, run_dir, started, control=None)
    if summary["stop_reason"].startswith(STARVED):
        raise StarvedError(summary["stop_reason"], starvation_advice(run_dir, summary["dropped_groups"]))
    if full := full_disk(summary["stop_reason"]):
        raise SetupError(full, "then continue with --resume; nothing was lost")
    if recipe.evaluation.supervised_control and summary["train_seconds"]:
        with RunLock(run_dir):
            control = train_control(recipe, run_dir, quiet=quiet)
        summary = _summarise(recipe, run_dir, started, control=control)
    mark_finished(run_dir)
    return summary


@contextmanager
def _summary_of_failure(recipe: Recipe, run_dir: Path, started: float) -> Iterator[None]:
    """Write a summary if an error of the block ends the run, with the error as the stop reason.

    A run that the user stopped, or whose ledger does not answer, gets no summary, because it continues with `--resume`.
    """
    try:
        yield
    except (InterruptedByUser, LedgerUnreachableError):
        raise
    except Exception as error:
        reason = f"error: {error.what if isinstance(error, QuartetError) else f'{type(error).__name__}: {error}'}"
        try:
            _end_with(reason.splitlines()[0], recipe, run_dir, started)
        except (QuartetError, OSError) as second:  # a full disk, or another process that has resumed the run
            LOG.error("cannot write summary.json: %s", second)
        raise


def _end_with(reason: str, recipe: Recipe, run_dir: Path, started: float) -> None:
    """Record the reason of the run's end. Raises `SetupError` if another process has resumed the run."""
    with RunLock(run_dir), closing(Ledger.open(run_dir)) as ledger:
        ledger.request_stop(reason)
        write_summary(recipe, run_dir, ledger, wall_seconds=time.monotonic() - started, stop_reason=reason)


def starvation_advice(run_dir: Path, dropped_groups: dict[str, int]) -> str:
    """Return advice for a starved run: the engine's reason if it rejected the newest policy, else advice by the most
    frequent drop reason of the run's groups, with the newest error if that is why rollouts did not count."""
    more = "see 'Starved' in docs/troubleshooting.md"
    with closing(Ledger.open(run_dir)) as ledger:
        newest = ledger.policies.latest()
        failure = newest_error(ledger)
        refusals = [event.fields for event in ledger.events() if event.kind == "policy_refused"]
    for refused in refusals:
        if (refused.get("policy", newest.name), refused["version"]) == (newest.name, newest.version):
            return f"the engine rejected the newest policy: {refused['error']}; {more}"
    judged = {reason: count for reason, count in dropped_groups.items() if reason != TRAINING_ENDED}
    if not judged:
        return f"no filter dropped a group: rollouts are too slow, or fail; {more}"
    reason = max(judged, key=lambda one: judged[one])
    cause = f"the newest error is {failure}; " if reason == TOO_FEW_COUNTABLE and failure else ""
    return f"most groups were dropped for {reason}: {cause}{remedy(reason)}; {more}"


def _summarise(recipe: Recipe, run_dir: Path, started: float, *, control: Results | None) -> Summary:
    with closing(Ledger.open(run_dir)) as ledger:
        return write_summary(recipe, run_dir, ledger, wall_seconds=time.monotonic() - started, control=control)


def forget_stop(run_dir: Path) -> None:
    """Clear the earlier stop reason (a limit, a full disk, starvation), so that it is evaluated again.

    The lock keeps an older Quartet from using the ledger during its upgrade.
    """
    if not Ledger.exists(run_dir):  # the run was killed before its ledger was created
        return
    with RunLock(run_dir), closing(Ledger.open(run_dir, upgrade=True)) as ledger:
        ledger.clear_stop()
        ledger.rollouts.requeue_all()


def _require_recovery_point(recipe: Recipe, run_dir: Path) -> None:
    """Raise `CheckpointError` if a trained policy of the run has no checkpoint to continue from.

    Without this check the trainer would fail at every restart.
    """
    if not Ledger.exists(run_dir):
        return
    with closing(Ledger.open(run_dir)) as ledger:
        if ledger.policies.live():
            for one in ledger.each():
                points_to_go_on_from(one, recipe.train.train_steps_per_checkpoint)


def _train(recipe: Recipe, run_dir: Path, *, quiet: bool, view: View) -> None:
    """Run all phases except the summary and the supervised control."""
    hint = f"to watch the run: quartet view {quote(str(run_dir))}" if view == "none" else ""
    if recipe.runtime.kind == "synchronous":
        from quartet.runtime.synchronous import train_synchronously  # imports all modules and torch

        if hint and not quiet:
            say(hint, err=True)
        train_synchronously(recipe, run_dir)
    else:
        _train_in_processes(recipe, run_dir, quiet=quiet, view=view, hint=hint)


def _train_in_processes(recipe: Recipe, run_dir: Path, *, quiet: bool, view: View, hint: str) -> None:
    evaluates = recipe.evaluation.before_and_after
    with Session(recipe, run_dir, quiet=quiet, hint=hint) as session, dashboard(run_dir, view, session.display.note):
        first = session.outlast(lambda: first_evaluation(recipe, session.ledger))
        if evaluates:
            session.evaluate(first)
        session.train()
        last = session.outlast(lambda: after_tag(session.ledger))
        if evaluates and last != first:
            session.evaluate(last)
        session.end()


def evaluate_policy(recipe: Recipe, policy: Path, run_dir: Path, *, quiet: bool) -> Summary:
    """Evaluate one policy on the held-out tasks of `recipe`, in a separate run directory."""
    evaluation = recipe.evaluation.model_copy(update={"supervised_control": False})
    observe = recipe.observe.model_copy(update={"sinks": []})  # sinks are for training runs only
    recipe = recipe.starting_from(str(policy.resolve()))
    recipe = recipe.model_copy(update={"evaluation": evaluation, "observe": observe})
    check_recipe(recipe)
    check_ray(recipe)
    check_policy(policy)
    ANSWER_TIMEOUT.seconds = recipe.runtime.ledger_timeout_seconds
    if run_dir.exists() and any(run_dir.iterdir()) and not is_evaluation(run_dir):
        raise ConfigError(f"{run_dir} contains files that are not of an evaluation", "give another --output")
    prepare(recipe, run_dir, resume=False, fresh=True)
    (run_dir / EVALUATION_MARKER).touch()
    with Session(recipe, run_dir, quiet=quiet) as session:
        session.evaluate("eval")
        if full := session.outlast(session.full_disk):
            raise SetupError(full, "the evaluation is incomplete: start it again")
        session.end()
        summary = evaluation_summary(recipe, session.ledger, policy)
    save_summary(run_dir, summary)
    return summary


def train_control(recipe: Recipe, run_dir: Path, *, quiet: bool) -> Results:
    """Train the supervised control for the same wall time as the run. Return its greedy results per family.

    The control starts from the run's initial policy, trains on `sft.data`, and rehearses exercises according to
    `sft.steps_per_rehearsal`. Raises `InterruptedByUser` on Ctrl-C and SIGTERM; the run itself is then complete.
    """
    with closing(Ledger.open(run_dir)) as ledger:
        seconds = float(ledger.value("training_seconds", 0.0))
    folder = run_dir / "control"
    command = [
        *child_command("quartet", "sft", str(run_dir / "config.toml"), "--json"),
        *("--set", "sft.exercise_steps=0", "--set", "sft.steps=0", "--set", f"sft.max_seconds={seconds}"),
        *("--set", f"sft.output={folder / 'policy'}"),
    ]
    if _wait_for(command):
        raise QuartetError(
            "the supervised control failed",
            "read its error message above, or skip the control with evaluation.supervised_control=false",
        )
    evaluate_policy(recipe, folder / "policy", folder / "evaluation", quiet=quiet)
    with closing(Ledger.open(folder / "evaluation")) as ledger:
        return ledger.evaluations.results("eval/greedy")


def _wait_for(command: list[str]) -> int:
    """Run a command and return its exit code. The command ends when this process ends."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptedByUser("stopped by the user", "the run is complete except for its control")

    former = {name: signal.signal(name, interrupt) for name in (signal.SIGINT, signal.SIGTERM)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()
        for name, handler in former.items():
            signal.signal(name, handler)
