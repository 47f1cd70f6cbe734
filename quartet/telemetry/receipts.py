"""Receipts: records that workers and trainers write about trajectories they stored and batches they trained.

The audit of a run compares receipts with the ledger. Receipts are in `receipts/worker-PID.jsonl` and
`receipts/trainer-PID.jsonl`, one JSON object per line, which the ledger does not read. A line is written before and
after each transaction, so a process that is killed in between leaves only the first line. Receipts are written only if
`runtime.receipts` is set.
"""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from quartet.crash_points import crash_point
from quartet.types import MAIN, Batch, GroupMember, Policy, ReplayRule, RolloutLease, Trajectory

FOLDER = "receipts"


class Appending(msgspec.Struct, frozen=True, kw_only=True, tag="appending"):
    """Receipt that a worker writes before it appends a trajectory."""

    time: float
    rollout_id: int
    attempt: int
    purpose: str
    status: str
    policy: str = MAIN
    part: str = ""
    """`Trajectory.part`."""
    digest: str


class Appended(msgspec.Struct, frozen=True, kw_only=True, tag="appended"):
    """Receipt that a worker writes after it appended a trajectory. `outcome` is an `AppendOutcome`, or `superseded` if
    the lease was lost."""

    time: float
    rollout_id: int
    attempt: int
    outcome: str


class Restored(msgspec.Struct, frozen=True, kw_only=True, tag="restored"):
    """Receipt of the weights from which a trainer starts or continues; `weights` is their digest."""

    time: float
    policy: str = MAIN
    train_step: int
    version: int
    weights: str


class TrainedMember(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory of a batch. `replay` is set for a stored trajectory that joined the group."""

    rollout_id: int
    part: str = ""
    """`Trajectory.part`."""
    digest: str
    replay: ReplayRule | None = None


class TrainedGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: int
    members: list[TrainedMember]


class Committing(msgspec.Struct, frozen=True, kw_only=True, tag="committing"):
    """Receipt that a trainer writes before it commits a batch. Training the batch changed the weights with digest
    `start_weights` to those with digest `weights`."""

    time: float
    policy: str = MAIN
    train_step: int
    batch_id: int
    start_version: int
    start_weights: str
    weights: str
    groups: list[TrainedGroup]


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag="committed"):
    """Receipt of a committed batch; `version` is the policy version that the commit made."""

    time: float
    policy: str = MAIN
    train_step: int
    batch_id: int
    version: int


Receipt = Appending | Appended | Restored | Committing | Committed


def trajectory_digest(trajectory: Trajectory) -> str:
    """Return the SHA-256, in hex, of the data that are trained: ids, log-probs, versions and temperature of every call,
    and the reward."""
    calls = [
        (c.prompt_ids, c.response_ids, c.response.logprobs, c.response.versions, c.sampling.temperature)
        for c in trajectory.calls
    ]
    return hashlib.sha256(msgspec.msgpack.encode((calls, trajectory.reward))).hexdigest()


class WorkerReceipts:
    """Writer of a rollout worker's receipts."""

    def __init__(self, run_dir: Path, *, enabled: bool) -> None:
        self._write = _writer(run_dir, "worker") if enabled else _nowhere

    def appending(self, lease: RolloutLease, trajectory: Trajectory) -> None:
        self._write(
            lambda: Appending(
                time=time.time(),
                rollout_id=lease.rollout_id,
                attempt=lease.attempt,
                purpose=lease.purpose,
                status=trajectory.status,
                policy=trajectory.policy,
                part=trajectory.part,
                digest=trajectory_digest(trajectory),
            )
        )

    def appended(self, lease: RolloutLease, outcome: str) -> None:
        self._write(
            lambda: Appended(time=time.time(), rollout_id=lease.rollout_id, attempt=lease.attempt, outcome=outcome)
        )


class TrainerReceipts:
    """Writer of the receipts of one policy's trainer. `weights` returns the digest of the current weights."""

    def __init__(self, run_dir: Path, policy: str, weights: Callable[[], str], *, enabled: bool) -> None:
        self._write = _writer(run_dir, "trainer") if enabled else _nowhere
        self._policy, self._weights, self._start_weights = policy, weights, ""

    def restored(self, policy: Policy) -> None:
        def receipt() -> Restored:
            self._start_weights = self._weights()
            return Restored(
                time=time.time(),
                policy=self._policy,
                train_step=policy.train_step,
                version=policy.version,
                weights=self._start_weights,
            )

        self._write(receipt)

    def committing(self, batch: Batch) -> None:
        def receipt() -> Committing:
            start, self._start_weights = self._start_weights, self._weights()
            return Committing(
                policy=self._policy,
                time=time.time(),
                train_step=batch.train_step,
                batch_id=batch.batch_id,
                start_version=batch.start_version,
                start_weights=start,
                weights=self._start_weights,
                groups=[
                    TrainedGroup(group_id=group.group_id, members=[_trained(member) for member in group.members])
                    for group in batch.groups
                ],
            )

        self._write(receipt)

    def committed(self, batch: Batch, policy: Policy) -> None:
        self._write(
            lambda: Committed(
                time=time.time(),
                policy=self._policy,
                train_step=batch.train_step,
                batch_id=batch.batch_id,
                version=policy.version,
            )
        )


def read_receipts(run_dir: Path) -> list[Receipt]:
    """Return all receipts of a run, oldest first, without lines that a killed process left incomplete."""
    receipts: list[Receipt] = []
    decoder = msgspec.json.Decoder(Receipt)
    for file in (run_dir / FOLDER).glob("*.jsonl"):
        receipts += [decoder.decode(line) for line in file.read_bytes().split(b"\n")[:-1]]
    return sorted(receipts, key=lambda receipt: receipt.time)


def _trained(member: GroupMember) -> TrainedMember:
    return TrainedMember(
        rollout_id=member.rollout_id,
        part=member.trajectory.part,
        digest=trajectory_digest(member.trajectory),
        replay=member.replay,
    )


def _writer(run_dir: Path, role: str) -> Callable[[Callable[[], Receipt]], None]:
    """Return a function that appends a receipt to this process's file with a single write."""
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / f"{role}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return lambda receipt: _append(descriptor, receipt())


def _append(descriptor: int, receipt: Receipt) -> None:
    name = receipt.__struct_config__.tag
    crash_point(f"{name}.before")
    os.write(descriptor, msgspec.json.encode(receipt) + b"\n")
    crash_point(f"{name}.after")


def _nowhere(receipt: Callable[[], Receipt]) -> None:
    """Write nothing. The receipt is not created, which saves the hashing."""
