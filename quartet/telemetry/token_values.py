"""Token values: what a train step assigned to and computed for each trained token, stored before the trainer's commit.

One file per batch, `tokens/step_000012_batch_000012.msgpack`. The viewer and the audit read it instead of computing the
values again; training never reads it.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

FOLDER = "tokens"


class CallValues(Struct, frozen=True, kw_only=True):
    """Values of one call in one group: `[num_response_tokens]` each, NaN at tokens that were not trained."""

    rollout_id: int
    call_index: int
    group_id: int | None = None
    """Group of the values: a stored success that joined another group has values there too. None in files of older
    versions."""
    logprobs: bytes
    """float16, under the weights at the start of the train step, in nats: pi_old."""
    entropies: bytes
    """float16, in nats, of the distribution that the token was drawn from, when the optimizer step used it."""
    advantages: bytes = b""
    """float32, assigned by the credit; a single number if all trained tokens have the same. Empty in files of older
    versions, as are `returns`."""
    returns: bytes = b""

    @property
    def trained(self) -> np.ndarray:
        """`[num_response_tokens]`: True at trained tokens."""
        return ~np.isnan(unpacked(self.logprobs))


def unpacked(values: bytes) -> np.ndarray:
    """Return `[num_response_tokens]` float32 from one of the float16 fields."""
    return np.frombuffer(values, dtype=np.float16).astype(np.float32)


def packed_assignment(values_R: np.ndarray, trained_R: np.ndarray) -> bytes:
    """Return the bytes of `advantages` or `returns`."""
    of_trained = values_R[trained_R].astype(np.float32)
    constant = len(of_trained) > 0 and (of_trained == of_trained[0]).all()
    return of_trained[:1].tobytes() if constant else np.where(trained_R, values_R, np.nan).astype(np.float32).tobytes()


def assigned(values: bytes, trained_R: np.ndarray) -> np.ndarray | None:
    """Return `[num_response_tokens]` float32 from `advantages` or `returns`; None if an older version stored none."""
    return np.where(trained_R, np.frombuffer(values, dtype=np.float32), np.float32(np.nan)) if values else None


def write_token_values(
    run_dir: Path, train_step: int, batch_id: int, calls: Iterable[CallValues], max_megabytes: int
) -> None:
    """Write one batch's values atomically, and delete the oldest files over the budget."""
    path = _path(run_dir, train_step, batch_id)
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.msgpack.encode(list(calls)))
    partial.replace(path)
    left = max_megabytes * 10**6
    for file in sorted(path.parent.glob("step_*.msgpack"), reverse=True):
        with suppress(FileNotFoundError):  # the trainers of a run's other policies delete here, too
            left -= file.stat().st_size
            if left < 0:
                file.unlink()


def read_token_values(run_dir: Path, train_step: int, batch_id: int) -> list[CallValues] | None:
    """Return the values of one batch; None if they were not kept."""
    path = _path(run_dir, train_step, batch_id)
    return msgspec.msgpack.decode(path.read_bytes(), type=list[CallValues]) if path.is_file() else None


def _path(run_dir: Path, train_step: int, batch_id: int) -> Path:
    return run_dir / FOLDER / f"step_{train_step:06}_batch_{batch_id:06}.msgpack"
