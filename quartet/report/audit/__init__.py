"""Audit of a run's promises (nothing lost, nothing trained twice, bounded lag) without trusting the ledger.

The audit reads receipts, policies and trajectories. A receipt is a record that a worker or trainer writes to its own
file about a trajectory that it stored or a batch that it trained. The receipts of train steps hold hashes of the
weights before and after the step. These hashes chain the steps from the newest policy back to the initial one, and so
determine which batches were trained. The ledger is trusted only for the reasons why rollouts were not trained, and for
which replayed members are demonstrations, because importing demonstrations leaves no receipt.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins

from quartet.config import Recipe
from quartet.errors import CheckpointError, LedgerError, PictureMissingError
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import checkpoint_folder
from quartet.on_progress import OnProgress, no_progress
from quartet.policy.digest import weights_digest
from quartet.policy.weights import read_weights
from quartet.recipe.file import read_resolved
from quartet.report.audit.policy_receipts import PolicyReceipts, RolloutPart, UnexplainedWeightsError
from quartet.report.audit.retrace import Retrace
from quartet.report.check import Finding, check_ledger
from quartet.report.fates import demonstration_ids, rollout_fates
from quartet.telemetry.receipts import Committing, read_receipts
from quartet.train.publish import published_dtype
from quartet.types import Policy

REPLAY = "replay_differs"
"""Kind of a finding: repeating the training gives other weights, or no receipt explains the weights."""
NOT_AUDITED = "not_audited"
"""Kind of a finding: a check ended early, because its data are damaged or missing, or this machine lacks the run's
device."""
_UNREADABLE = (CheckpointError, LedgerError, PictureMissingError)


class AuditReport(Struct, frozen=True, kw_only=True):
    """Counts and findings of an audit. If `findings` is empty, the run kept its promises."""

    appended: int
    """Number of countable trajectories of training rollouts that were reported to their workers as stored: one for each
    part that a trained policy played."""
    superseded: int
    """Number of trajectories that the ledger rejected because their lease was lost, evaluation included."""
    trained: int
    """Number of fresh trajectories in the train steps that led to the newest policy."""
    train_steps: int
    abandoned_steps: int
    """Number of train steps that were computed, but either not committed or later rolled back."""
    lost: int
    trained_twice: int
    over_lag: int
    """Number of trained tokens whose lag exceeded the bound."""
    replay_identical: bool
    """True if training the batches again gave the same weights, bit for bit, after every step, and the same final
    optimizer state. It is also False if a part of the run could not be audited."""
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


class _PolicyAudit(NamedTuple):
    """Result of the audit for one policy of a run. `chain` holds the receipts of its train steps, oldest first."""

    receipts: PolicyReceipts
    chain: list[Committing]
    over_lag: int
    findings: list[Finding]


def audit(run_dir: Path, on_progress: OnProgress = no_progress) -> AuditReport:
    """Audit a run that is not live and has receipts (`runtime.receipts`), by repeating all its train steps."""
    recipe, receipts = read_resolved(run_dir / "config.toml"), read_receipts(run_dir)
    with closing(Ledger.open(run_dir)) as ledger:
        audits = [
            _audit_policy(recipe, one, PolicyReceipts(receipts, one.policy), run_dir, on_progress)
            for one in ledger.each()
        ]
        several = len(ledger.trained) > 1
        findings = [
            Finding(kind=one.kind, what=f"policy {each.receipts.policy}: {one.what}") if several else one
            for each in audits
            for one in each.findings
        ]
        findings += check_ledger(ledger).findings
    kinds = Counter(finding.kind for finding in findings)
    return AuditReport(
        appended=sum(len(one.receipts.appended()) for one in audits),
        superseded=audits[0].receipts.superseded,
        trained=sum(len(_fresh(one.chain)) for one in audits),
        train_steps=sum(len(one.chain) for one in audits),
        abandoned_steps=sum(len(one.receipts.computed) - len(one.chain) for one in audits),
        lost=kinds["lost"],
        trained_twice=kinds["trained_twice"],
        over_lag=sum(one.over_lag for one in audits),
        replay_identical=not kinds[REPLAY] and not kinds[NOT_AUDITED],
        findings=findings,
    )


def _audit_policy(
    recipe: Recipe, ledger: Ledger, receipts: PolicyReceipts, run_dir: Path, on_progress: OnProgress
) -> _PolicyAudit:
    try:
        initial, newest = _policy(ledger, 0), ledger.policies.latest()
        first, last = _digest(recipe, run_dir, initial), _digest(recipe, run_dir, newest)
        retrace = Retrace(recipe, ledger, run_dir / initial.path)
    except _UNREADABLE as error:
        return _PolicyAudit(receipts, [], 0, [Finding(kind=NOT_AUDITED, what=error.what)])
    findings: list[Finding] = []
    if not retrace.is_exact:
        what = (
            f"weights: this machine lacks {recipe.train.device}, and the CPU, which trained again, rounds differently"
        )
        findings.append(Finding(kind=NOT_AUDITED, what=what))
    chain: list[Committing] = []
    try:
        chain = receipts.chain(first, last, newest.train_step)
    except UnexplainedWeightsError as error:
        findings.append(Finding(kind=REPLAY, what=error.what))
    else:
        findings += _all_of(
            _vanished(receipts, chain),
            _other_versions(receipts, chain),
            _replay(retrace, chain, on_progress),
            _other_files(ledger, recipe, run_dir, chain),
            _other_optimizer(retrace, run_dir, chain, ledger.policy),
        )
    findings += _all_of(_lost(receipts, chain, ledger), _trained_twice(chain), _invented(receipts, chain, ledger))
    return _PolicyAudit(receipts, chain, retrace.over_lag, findings)


def _all_of(*checks: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings of all checks. A check that reads something damaged ends there, with the reason as a
    finding."""
    for check in checks:
        try:
            yield from check
        except _UNREADABLE as error:
            yield Finding(kind=NOT_AUDITED, what=error.what)


def _lost(receipts: PolicyReceipts, chain: Sequence[Committing], ledger: Ledger) -> Iterator[Finding]:
    """Find rollouts that were appended but neither trained nor left out for a stored reason.

    A rollout counts as appended if its worker recorded this outcome, or if the ledger has the rollout, since the worker
    may have died before it recorded the outcome.
    """
    trained, fates = set(_fresh(chain)), {RolloutPart(*key): fate for key, fate in rollout_fates(ledger).items()}
    for part in sorted((receipts.appended() | fates.keys()) - trained):
        if fates.get(part, "") in ("", "trained"):
            yield Finding(kind="lost", what=f"{part} was appended but not trained, without a reason")


def _trained_twice(chain: Sequence[Committing]) -> Iterator[Finding]:
    for part, times in Counter(_fresh(chain)).items():
        if times > 1:
            yield Finding(kind="trained_twice", what=f"{part} was trained {times} times")


def _invented(receipts: PolicyReceipts, chain: Sequence[Committing], ledger: Ledger) -> Iterator[Finding]:
    """Find trained trajectories whose data (`trajectory_digest`) no worker appended. Demonstrations are left out."""
    offered, demonstrations = receipts.offered(), demonstration_ids(ledger)
    for step in chain:
        for member in (member for group in step.groups for member in group.members):
            if member.replay is not None and member.rollout_id in demonstrations:
                continue
            part = RolloutPart(member.rollout_id, member.part)
            if member.digest not in offered.get(part, ()):
                what = f"train step {step.train_step} trained {part} with data that no worker appended"
                yield Finding(kind="invented", what=what)


def _vanished(receipts: PolicyReceipts, chain: Sequence[Committing]) -> Iterator[Finding]:
    """Find committed train steps that are missing although no trainer rolled back to an earlier step."""
    kept = {step.batch_id for step in chain}
    for receipt in receipts.committed.values():
        began_again = (
            restored.time > receipt.time and restored.train_step < receipt.train_step for restored in receipts.restored
        )
        if receipt.batch_id not in kept and not any(began_again):
            what = f"batch {receipt.batch_id} was committed as train step {receipt.train_step} but is missing"
            yield Finding(kind="vanished", what=what)


def _other_versions(receipts: PolicyReceipts, chain: Sequence[Committing]) -> Iterator[Finding]:
    """Find train steps that did not start from the policy version that the previous step committed."""
    for before, step in pairwise(chain):
        committed = receipts.committed.get(before.batch_id)
        if committed is not None and committed.version != step.start_version:
            what = f"train step {step.train_step} started from version {step.start_version}, not {committed.version}"
            yield Finding(kind="other_version", what=what)


def _replay(retrace: Retrace, chain: Sequence[Committing], on_progress: OnProgress) -> Iterator[Finding]:
    """Repeat the train steps, and stop at the first that gives other weights, since all later weights would differ
    too."""
    for done, step in enumerate(chain, start=1):
        if not retrace.step(step):
            what = f"train step {step.train_step} trained with other advantages than its rewards give"
            yield Finding(kind="other_credit", what=what)
        on_progress(done, len(chain))
        if retrace.is_exact and retrace.weights != step.weights:
            yield Finding(kind=REPLAY, what=f"training step {step.train_step} again gives other weights")
            return
    if retrace.over_lag:
        yield Finding(kind="over_lag", what=f"{retrace.over_lag} tokens older than the bound were trained")


def _other_files(ledger: Ledger, recipe: Recipe, run_dir: Path, chain: Sequence[Committing]) -> Iterator[Finding]:
    """Find policies on disk whose weights differ from the receipt of their train step."""
    weights = {step.train_step: step.weights for step in chain}
    for policy in ledger.policies.live():
        folder = run_dir / policy.path
        if policy.train_step and folder.is_dir() and _digest(recipe, run_dir, policy) != weights.get(policy.train_step):
            yield Finding(kind="other_file", what=f"{folder} has other weights than train step {policy.train_step}")


def _other_optimizer(retrace: Retrace, run_dir: Path, chain: Sequence[Committing], policy: str) -> Iterator[Finding]:
    """Report the newest step's checkpoint if training again gave another optimizer state or other exact weights.

    If the weights of that step are missing, which another finding reports, nothing is compared. `check_ledger`
    reports a missing checkpoint.
    """
    for step in chain[-1:]:
        folder = checkpoint_folder(run_dir, step.train_step, step.batch_id, policy)
        if folder.is_dir() and retrace.weights == step.weights and not retrace.same_optimizer(folder):
            yield Finding(kind=REPLAY, what=f"{folder} has another optimizer state than training again gives")


def _fresh(chain: Sequence[Committing]) -> list[RolloutPart]:
    """Return the trajectories that were trained as members of their own group, not as replays."""
    members = (member for step in chain for group in step.groups for member in group.members)
    return [RolloutPart(member.rollout_id, member.part) for member in members if member.replay is None]


def _policy(ledger: Ledger, version: int) -> Policy:
    return next(policy for policy in ledger.policies.live() if policy.version == version)


def _digest(recipe: Recipe, run_dir: Path, policy: Policy) -> str:
    """Return the digest of a policy's weights in the data type in which the trainer publishes."""
    return weights_digest(read_weights(run_dir / policy.path), published_dtype(recipe))
