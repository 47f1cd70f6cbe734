"""Beginnings of forked rollouts (children): the calls and the state that a child shares with its parent.

All children of one fork point share one blob, which is deleted when they have ended.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from quartet.ledger.blobs import Blob, BlobStore, DamagedBlobError
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import HAS_BEGINNING, rollouts
from quartet.types import Beginning, Call, FinishReason, Fork, RolloutLease, Root, TokenColumns


class Child(NamedTuple):
    """A child to be queued."""

    place: Fork
    beginning: Blob
    deletions: int
    """Number of blob deletions in this run before the beginning was packed."""


def shared_calls(calls: Sequence[Call], call_index: int) -> list[Call]:
    """Return the calls that a child shares with its parent, with all tokens marked as borrowed.

    The parent's next prompt, if there is one, follows as a call without a response. A child that receives another
    prompt has diverged.
    """
    shared = [replace(call, borrowed=len(call.prompt_ids) + len(call.response)) for call in calls[: call_index + 1]]
    following = [
        replace(call, response=TokenColumns(), borrowed=len(call.prompt_ids), finish_reason=FinishReason.ABORT)
        for call in calls[call_index + 1 : call_index + 2]
    ]
    return shared + following


def pack_child(blobs: BlobStore, place: Fork, beginning: Beginning) -> Child:
    """Encode and compress a child's beginning, outside of any transaction."""
    deletions = blobs.deletions()
    return Child(place, blobs.pack_shared(msgspec.msgpack.encode(beginning)), deletions)


def write_beginning(blobs: BlobStore, connection: Connection, one: Child | Root) -> dict[str, int | str | bool]:
    """Store the beginning of a new child. Return the columns of the new rollout's row that say how it begins."""
    if isinstance(one, Root):
        return {"guided": one.guided}
    blobs.write_shared(connection, [one.beginning], one.deletions)
    return {
        "parent_id": one.place.rollout_id,
        "parent_call": one.place.call_index,
        "beginning": one.beginning.digest,
        "beginning_bytes": len(one.beginning.data),
    }


def load_shared(blobs: BlobStore, lease: RolloutLease) -> Beginning:
    """Return what a child shares with its parent; an empty `Beginning` if the rollout begins with a reset.

    Raises `DamagedBlobError`.
    """
    return read_beginning(blobs, lease.beginning) if lease.beginning else Beginning()


def read_beginning(blobs: BlobStore, digest: str) -> Beginning:
    """Read a stored beginning. Raises `DamagedBlobError`."""
    try:
        return msgspec.msgpack.decode(blobs.get(digest), type=Beginning)
    except msgspec.MsgspecError as error:
        raise DamagedBlobError(f"blob {digest} does not hold the beginning of a forked rollout: {error}") from error


def delete_unused(db: RunDatabase, digests: set[str]) -> int:
    """Delete the beginnings that no rollout refers to, in transactions of their own; return their number."""
    return len(db.store.blobs.delete_unreferenced(digests, rollouts.c.beginning, HAS_BEGINNING))


def discard(db: RunDatabase, children: Iterable[Child | Root]) -> None:
    """Delete the files of children that were not queued: a large beginning is written before its row."""
    large = {
        child.beginning.digest for child in children if isinstance(child, Child) and not child.beginning.in_database
    }
    if large:
        delete_unused(db, large)
