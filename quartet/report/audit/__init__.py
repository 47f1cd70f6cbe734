"""Does a run keep its promises? An audit from receipts, policies and trajectories; the ledger is asked, not believed.

The hashes of the weights chain the train steps from the newest policy back to the initial one, so which batches were
trained follows from them alone. The ledger's word counts only for why something was not trained, and for which replayed
members are demonstrations, whose import leaves no receipt.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from quartet.config import Recipe
from quartet.errors import CheckpointError, ConfigError, LedgerError
from quartet.ledger import Ledger
from quartet.ledger.check import Finding
from quartet.ledger.checkpoints import checkpoint_folder
from quartet.on_progress import OnProgress, nobody_watches
from quartet.policy.digest import weights_digest
from quartet.policy.load import read_weights
from quartet.recipe.file import read_resolved
from quartet.report.audit.retrace import Retrace
from quartet.report.audit.testimony import Testimony, UnexplainedWeightsError
from quartet.telemetry.receipts import Committing, read_receipts
from quartet.types import Policy

REPLAY = "replay_differs"
"""Kind of a finding about weights: training again gives other ones, or nobody knows where they came from."""


class AuditReport(Struct, frozen=True, kw_only=True):
    """What the audit looked at and what it found. Without `findings` every promise holds."""

    appended: int
    """Countable training rollouts whose workers were told that they are stored."""
    superseded: int
    """Appends that came too late and were refused, evaluation included."""
    trained: int
    """Fresh trajectories in the train steps that led to the newest policy."""
    train_steps: int
    abandoned_steps: int
    """Train steps that were computed, but not committed or rolled back later."""
    lost: int
    trained_twice: int
    over_lag: int
    """Trained tokens that were older than the bound."""
    replay_identical: bool
    """Training the batches again gave the same bits after every step, and the same optimizer in the end."""
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


def audit(run_dir: Path, on_progress: OnProgress = nobody_watches) -> AuditReport:
    """Audit a run that kept receipts (`runtime.receipts`) and is not at work. Trains all its steps again."""
    recipe, ledger = read_resolved(run_dir / "config.toml"), Ledger.open(run_dir)
    if len(ledger.trained) > 1:
        ledger.close()
        raise ConfigError(
            f"{run_dir} trained {len(ledger.trained)} policies; an audit retraces the train steps of one",
            "`quartet ledger check` verifies every policy's promises from the ledger",
        )
    testimony = Testimony(read_receipts(run_dir))
    findings, over_lag = [], 0
    chain: list[Committing] = []
    try:
        initial, newest = _policy(ledger, 0), ledger.latest_policy()
        chain = testimony.chain(_digest(run_dir, initial), _digest(run_dir, newest), newest.train_step)
        retrace = Retrace(recipe, ledger, run_dir / initial.path)
        findings += [
            *_vanished(testimony, chain),
            *_other_versions(testimony, chain),
            *_replay(retrace, chain, on_progress),
        ]
        findings += [
            *_other_files(ledger, run_dir, chain),
            *_other_optimizer(retrace, recipe, run_dir, chain, ledger.policy),
        ]
        over_lag = retrace.over_lag
    except (UnexplainedWeightsError, CheckpointError, LedgerError) as error:
        findings.append(Finding(kind=REPLAY, what=error.what))
    findings += [*_lost(testimony, chain, ledger), *_trained_twice(chain), *_invented(testimony, chain, ledger)]
    findings += ledger.check().findings
    ledger.close()
    kinds = Counter(finding.kind for finding in findings)
    return AuditReport(
        appended=len(testimony.appended()),
        superseded=testimony.superseded,
        trained=len(_fresh(chain)),
        train_steps=len(chain),
        abandoned_steps=len(testimony.computed) - len(chain),
        lost=kinds["lost"],
        trained_twice=kinds["trained_twice"],
        over_lag=over_lag,
        replay_identical=not kinds[REPLAY],
        findings=findings,
    )


def _lost(testimony: Testimony, chain: Sequence[Committing], ledger: Ledger) -> Iterator[Finding]:
    """A rollout is appended once its worker was told so, or, killed before it could be told, when the ledger has it."""
    trained, fates = set(_fresh(chain)), ledger.fates()
    for rollout_id in sorted((testimony.appended() | fates.keys()) - trained):
        if fates.get(rollout_id, "") in ("", "trained"):
            yield Finding(kind="lost", what=f"rollout {rollout_id} was appended, not trained, and nothing says why")


def _trained_twice(chain: Sequence[Committing]) -> Iterator[Finding]:
    for rollout_id, times in Counter(_fresh(chain)).items():
        if times > 1:
            yield Finding(kind="trained_twice", what=f"rollout {rollout_id} was trained {times} times")


def _invented(testimony: Testimony, chain: Sequence[Committing], ledger: Ledger) -> Iterator[Finding]:
    """Every trained trajectory is, token for token, one that a worker offered and nobody refused, or a replayed one of
    which the ledger says that it is a demonstration."""
    offered, demonstrations = testimony.offered(), ledger.demonstrations()
    for step in chain:
        for member in (member for group in step.groups for member in group.members):
            if member.replay is not None and member.rollout_id in demonstrations:
                continue
            if member.digest not in offered.get(member.rollout_id, ()):
                what = f"train step {step.train_step} trained rollout {member.rollout_id} as no worker appended it"
                yield Finding(kind="invented", what=what)


def _vanished(testimony: Testimony, chain: Sequence[Committing]) -> Iterator[Finding]:
    """A committed train step stays, unless a trainer began again before it."""
    kept = {step.batch_id for step in chain}
    for receipt in testimony.committed.values():
        began_again = (
            restored.time > receipt.time and restored.train_step < receipt.train_step for restored in testimony.restored
        )
        if receipt.batch_id not in kept and not any(began_again):
            what = f"batch {receipt.batch_id} was committed as train step {receipt.train_step} and is gone"
            yield Finding(kind="vanished", what=what)


def _other_versions(testimony: Testimony, chain: Sequence[Committing]) -> Iterator[Finding]:
    """Each step starts from the version that the one before it became."""
    for before, step in pairwise(chain):
        committed = testimony.committed.get(before.batch_id)
        if committed is not None and committed.version != step.start_version:
            what = f"train step {step.train_step} started from version {step.start_version}, not {committed.version}"
            yield Finding(kind="other_version", what=what)


def _replay(retrace: Retrace, chain: Sequence[Committing], on_progress: OnProgress) -> Iterator[Finding]:
    """Stops at the first step that differs: all later ones would."""
    for done, step in enumerate(chain, start=1):
        if not retrace.step(step):
            what = f"train step {step.train_step} trained with other advantages than its rewards give"
            yield Finding(kind="other_credit", what=what)
        on_progress(done, len(chain))
        if retrace.weights != step.weights:
            yield Finding(kind=REPLAY, what=f"training step {step.train_step} again gives other weights")
            return
    if retrace.over_lag:
        yield Finding(kind="over_lag", what=f"{retrace.over_lag} tokens older than the bound were trained")


def _other_files(ledger: Ledger, run_dir: Path, chain: Sequence[Committing]) -> Iterator[Finding]:
    """Every policy still on disk holds the weights that its train step gave."""
    weights = {step.train_step: step.weights for step in chain}
    for policy in ledger.policies():
        folder = run_dir / policy.path
        if policy.train_step and folder.is_dir() and _digest(run_dir, policy) != weights.get(policy.train_step):
            yield Finding(kind="other_file", what=f"{folder} holds other weights than train step {policy.train_step}")


def _other_optimizer(
    retrace: Retrace, recipe: Recipe, run_dir: Path, chain: Sequence[Committing], policy: str
) -> Iterator[Finding]:
    """If the newest step has a checkpoint, it holds what training again gives."""
    for step in chain[-1:]:
        folder = checkpoint_folder(run_dir, step.train_step, step.batch_id, policy)
        due = step.train_step % recipe.train.train_steps_per_checkpoint == 0
        if due and not folder.is_dir():
            yield Finding(kind="no_checkpoint", what=f"{folder}, the checkpoint of the newest step, is missing")
        elif due and not retrace.same_optimizer(folder):
            yield Finding(kind=REPLAY, what=f"{folder} holds another optimizer state than training again gives")


def _fresh(chain: Sequence[Committing]) -> list[int]:
    """Rollouts trained as members of their own group."""
    members = (member for step in chain for group in step.groups for member in group.members)
    return [member.rollout_id for member in members if member.replay is None]


def _policy(ledger: Ledger, version: int) -> Policy:
    return next(policy for policy in ledger.policies() if policy.version == version)


def _digest(run_dir: Path, policy: Policy) -> str:
    return weights_digest(read_weights(run_dir / policy.path))
