"""What a train step assigned to each trained token and computed for it, stored, by the trainer before its commit.

One file per batch, `tokens/step_000012_batch_000012.msgpack`. The viewer and the audit read it and compute nothing of
it again; training never reads it.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

FOLDER = "tokens"


class CallValues(Struct, frozen=True, kw_only=True):
    """Of one call in one group: `[num_response_tokens]` each, NaN at tokens that were not trained."""

    rollout_id: int
    call_index: int
    group_id: int | None = None
    """A stored success that joined a group has values there too. None in files of older versions, which left it out."""
    logprobs: bytes
    """float16, under the weights at the start of the train step, in nats: pi_old."""
    entropies: bytes
    """float16, of the distribution that the token was drawn from, in nats, when the optimizer step used it."""
    advantages: bytes = b""
    """float32, what credit assigned; a single number where all trained tokens have the same. Empty in files of older
    versions. So are `returns`."""
    returns: bytes = b""

    @property
    def trained(self) -> np.ndarray:
        """`[num_response_tokens]`: True at tokens that were trained."""
        return ~np.isnan(unpacked(self.logprobs))


def unpacked(values: bytes) -> np.ndarray:
    """[num_response_tokens] float32, from one of the fields in float16."""
    return np.frombuffer(values, dtype=np.float16).astype(np.float32)


def packed_assignment(values_R: np.ndarray, trained_R: np.ndarray) -> bytes:
    """The bytes of `advantages` or `returns`."""
    of_trained = values_R[trained_R].astype(np.float32)
    constant = len(of_trained) > 0 and (of_trained == of_trained[0]).all()
    return of_trained[:1].tobytes() if constant else np.where(trained_R, values_R, np.nan).astype(np.float32).tobytes()


def assigned(values: bytes, trained_R: np.ndarray) -> np.ndarray | None:
    """[num_response_tokens] float32, from `advantages` or `returns`; None where an older version kept none."""
    return np.where(trained_R, np.frombuffer(values, dtype=np.float32), np.float32(np.nan)) if values else None


def write_token_values(
    run_dir: Path, train_step: int, batch_id: int, calls: Iterable[CallValues], max_megabytes: int
) -> None:
    """Write one batch's values, whole or not at all; the oldest files over the budget go."""
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
    """The values of one batch; None where they were not kept."""
    path = _path(run_dir, train_step, batch_id)
    return msgspec.msgpack.decode(path.read_bytes(), type=list[CallValues]) if path.is_file() else None


def _path(run_dir: Path, train_step: int, batch_id: int) -> Path:
    return run_dir / FOLDER / f"step_{train_step:06}_batch_{batch_id:06}.msgpack"
