"""What the trainer computed for each trained token, kept for people who look at a rollout: nothing is trained by it.

One file per trained batch, `tokens/step_000012_batch_000012.msgpack`; a run without them is whole.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

FOLDER = "tokens"


class CallValues(Struct, frozen=True, kw_only=True):
    """Of one call: float16, [num_response_tokens], NaN at tokens that were not trained."""

    rollout_id: int
    call_index: int
    logprobs: bytes
    """Under the weights at the start of the train step, in nats: pi_old."""
    entropies: bytes
    """Of the distribution that the token was drawn from, in nats, when the optimizer step used it."""


def unpacked(values: bytes) -> np.ndarray:
    """[num_response_tokens] float32, from a field of `CallValues`."""
    return np.frombuffer(values, dtype=np.float16).astype(np.float32)


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
        left -= file.stat().st_size
        if left < 0:
            file.unlink()


def read_token_values(run_dir: Path, train_step: int, batch_id: int, rollout_id: int) -> dict[int, CallValues]:
    """The values of one rollout in one batch, by the index of the call; empty where none were kept."""
    path = _path(run_dir, train_step, batch_id)
    if not path.is_file():
        return {}
    calls = msgspec.msgpack.decode(path.read_bytes(), type=list[CallValues])
    return {call.call_index: call for call in calls if call.rollout_id == rollout_id}


def _path(run_dir: Path, train_step: int, batch_id: int) -> Path:
    return run_dir / FOLDER / f"step_{train_step:06}_batch_{batch_id:06}.msgpack"
