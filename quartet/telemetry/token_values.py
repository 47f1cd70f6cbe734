"""Token values: each trained token's log-prob, entropy, advantage and return in a train step.

There is one file per batch, for example `tokens/step_000012_batch_000012.msgpack`, written before the trainer commits.
The viewer and the audit read the file instead of computing the values again; training never reads it.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from quartet.errors import RecordsError

FOLDER = "tokens"


class CallValues(Struct, frozen=True, kw_only=True):
    """Values of the response tokens of one call in one group.

    Each field of bytes holds `[num_response_tokens]` numbers, NaN at tokens that were not trained.
    """

    rollout_id: int
    call_index: int
    part: str = ""
    """`Trajectory.part` of the trajectory that has the call."""
    group_id: int | None = None
    """Group in which the tokens were trained. A success that was replayed in another group has other values there. None
    in files of older versions."""
    logprobs: bytes
    """Log-probs, float16, in nats, under the weights at the start of the train step (pi_old)."""
    entropies: bytes
    """Entropies at temperature 1, float16, in nats, under the weights before the optimizer step that used the token
    first."""
    advantages: bytes = b""
    """Advantages, float32; a single number if all trained tokens have the same advantage. Empty in files of older
    versions."""
    returns: bytes = b""
    """Returns, in the same form as `advantages`. NaN also at trained tokens to which credit gave no return."""

    @property
    def trained(self) -> np.ndarray:
        """True at trained tokens: `[num_response_tokens]`."""
        return ~np.isnan(unpacked(self.logprobs))


def unpacked(values: bytes) -> np.ndarray:
    """Return the numbers of a float16 field: `[num_response_tokens]`, float32."""
    return np.frombuffer(values, dtype=np.float16).astype(np.float32)


def packed_assignment(values_R: np.ndarray, trained_R: np.ndarray) -> bytes:
    """Return the bytes of the field `advantages` or `returns` for the values of a call's response tokens."""
    of_trained = values_R[trained_R].astype(np.float32)
    constant = len(of_trained) > 0 and (of_trained == of_trained[0]).all()
    return of_trained[:1].tobytes() if constant else np.where(trained_R, values_R, np.nan).astype(np.float32).tobytes()


def assigned(values: bytes, trained_R: np.ndarray) -> np.ndarray | None:
    """Return the numbers of `advantages` or `returns`: `[num_response_tokens]`, float32; None if the field is empty."""
    return np.where(trained_R, np.frombuffer(values, dtype=np.float32), np.float32(np.nan)) if values else None


def write_token_values(
    run_dir: Path, train_step: int, batch_id: int, calls: Iterable[CallValues], max_megabytes: int
) -> None:
    """Write the values of one batch atomically. Delete the oldest files if all together exceed `max_megabytes`."""
    path = _path(run_dir, train_step, batch_id)
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.msgpack.encode(list(calls)))
    partial.replace(path)
    left = max_megabytes * 10**6
    for file in sorted(path.parent.glob("step_*.msgpack"), reverse=True):
        with suppress(FileNotFoundError):  # trainers of other policies of the run delete files here, too
            left -= file.stat().st_size
            if left < 0:
                file.unlink()


def read_token_values(run_dir: Path, train_step: int, batch_id: int) -> list[CallValues] | None:
    """Return the values of one batch; None if its file was deleted or never written. Raise `RecordsError` if it is
    damaged."""
    path = _path(run_dir, train_step, batch_id)
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=list[CallValues])
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise RecordsError(f"{path.relative_to(run_dir)} is damaged: {error}", "restore it from a copy") from error


def _path(run_dir: Path, train_step: int, batch_id: int) -> Path:
    return run_dir / FOLDER / f"step_{train_step:06}_batch_{batch_id:06}.msgpack"
