"""A small run with one of everything: trained, dropped, retried, replayed, evaluated, and text that means harm."""

import struct
import zlib
from pathlib import Path

from benchmarks.bandit import bandit_recipe
from quartet.actions.taken import taken_action
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.token_values import CallValues, write_token_values
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    Picture,
    Purpose,
    RolloutLease,
    RolloutPlan,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)

SCRIPT = "<script>document.title='taken over'</script><img src=x onerror=\"document.title='taken over'\">"
"""What a web page or a model may have written."""


def png(width: int = 4, height: int = 3) -> bytes:
    """A grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x80" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def trajectory(
    task: Task,
    reward: float,
    *,
    status: Status = Status.COMPLETED,
    picture: bytes | None = None,
    said: str = "click left [1]",
    versions: tuple[int, ...] = (0, 0, 0),
) -> Trajectory:
    """Two turns of three tokens each; none for an infrastructure error."""
    if status.retried:
        return Trajectory(task=task, status=status, calls=[], turns=[], rewards={}, success=False, error="host gone")
    call = Call(
        prompt_ids=[7, 8],
        response=TokenColumns(
            token_ids=[1, 2, 3],
            logprobs=[-0.01, -1.0, -5.0],
            versions=list(versions),
        ),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )
    pictures = [Picture(data=picture)] if picture else []
    seen = Observation(goal=f"Pull. {said}", text=f"button left [1]\n{said}", pictures=pictures)
    turn = Turn(
        observation=seen, call_index=0, response=said, actions=[taken_action("click left [1]", points=[(2.0, 1.0)])]
    )
    return Trajectory(
        task=task,
        status=status,
        calls=[call, call],
        turns=[
            turn,
            Turn(observation=seen, call_index=1, response=said, actions=[taken_action("click (3,2)", "covered [1]")]),
        ],
        final_observation=seen,
        rewards={"task": reward},
        success=reward == 1,
    )


class Recorder:
    """Writes a run the way the modules do."""

    def __init__(self, run_dir: Path, url: str = "") -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))
        self.ledger = Ledger.create(run_dir, url=url)
        self.ledger.policies.register_initial("policies/v000000")
        self.run_dir = run_dir

    def group(self, family: str, rewards: list[float], *, purpose: Purpose = Purpose.TRAIN, **fields) -> int:
        """A closed group whose rollouts ended with these rewards."""
        leases = self.open_group(family, len(rewards), purpose=purpose)
        for lease in leases:
            self.ledger.trajectories.append(lease, trajectory(lease.task, rewards[lease.index], **fields), 3)
        self.ledger.groups.close(leases[0].group_id)
        return leases[0].group_id

    def open_group(self, family: str, size: int, *, purpose: Purpose = Purpose.TRAIN) -> list[RolloutLease]:
        task = Task(env="bandit", family=family, seed=3)
        tag = "before/greedy" if purpose is Purpose.EVAL else ""
        plan = RolloutPlan(task=task, num_rollouts=size, max_turns=5, purpose=purpose, tag=tag)
        if tag:
            self.ledger.evaluations.admit(tag, [plan])
        else:
            self.ledger.groups.admit(plan)
        return self.ledger.rollouts.claim("w", size, 60)

    def trainable(self, family: str, rewards: list[float], **fields) -> int:
        group_id = self.group(family, rewards, **fields)
        members = self.ledger.groups.load(group_id).members
        self.ledger.groups.make_trainable(group_id, [member.rollout_id for member in members], 2)
        return group_id

    def train(self) -> None:
        """One train step on the oldest trainable group, with the values of its tokens."""
        batch = self.ledger.batches.claim("trainer", 1, 5, "mask", 60)
        assert batch is not None
        policy = self.ledger.batches.commit(batch, f"policies/v{batch.train_step:06}", {})
        values = [
            CallValues(
                rollout_id=member.rollout_id,
                call_index=0,
                group_id=batch.groups[0].group_id,
                logprobs=_f16(-0.01, -0.5, _NAN),
                entropies=_f16(0, 1, _NAN),
                advantages=struct.pack("<3f", 0.5, -0.25, _NAN),
            )
            for member in batch.groups[0].members
        ]
        write_token_values(self.run_dir, batch.train_step, batch.batch_id, values, max_megabytes=1)
        assert policy.version == batch.train_step


_NAN = float("nan")


def _f16(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def record(run_dir: Path, url: str = "") -> Ledger:
    """Rollouts 1-2 trained at step 1, 3-4 all failed, 5-6 all solved, 7 retried once, 8-9 with a script and pictures,
    10 evaluated, 11-12 running and queued."""
    run = Recorder(run_dir, url)
    run.trainable("left", [0.0, 1.0], picture=png())
    run.train()
    for rewards in ([0.0, 0.0], [1.0, 1.0]):
        run.ledger.groups.drop(run.group("left", rewards), "equal_rewards")
    (lease,) = run.open_group("right", 1)
    run.ledger.trajectories.append(lease, trajectory(lease.task, 0, status=Status.ERROR_ENV), 3)
    (lease,) = run.ledger.rollouts.claim("w", 1, 60)
    run.ledger.trajectories.append(lease, trajectory(lease.task, 1, versions=(0, 1, 1)), 3)
    run.ledger.groups.close(lease.group_id)
    run.ledger.groups.make_trainable(lease.group_id, [lease.rollout_id], 1)
    run.trainable(SCRIPT, [0.5, 1.0], said=SCRIPT, picture=SCRIPT.encode())
    run.group("left", [1.0], purpose=Purpose.EVAL)
    task = Task(env="bandit", family="left", seed=4)
    run.ledger.groups.admit(RolloutPlan(task=task, num_rollouts=2, max_turns=5))
    run.ledger.rollouts.claim("w", 1, 60)
    return run.ledger
