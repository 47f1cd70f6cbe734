"""Locks by which commands that read a policy of an active run keep its disk budget from deleting that policy.

A lock is on a file of the policy's folder, so a command that is killed holds it no longer. The file is opened for
reading only by commands, which may not own the run, and for writing by the run: NFS requires the one for a shared lock
and the other for an exclusive one.
"""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from quartet.ledger import Ledger
from quartet.types import Policy

LOCKED = "config.json"
"""File of a policy's folder that is locked."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a run from deleting the policy in `folder` during the block. A missing folder is not held."""
    with ExitStack() as stack:
        with suppress(FileNotFoundError):
            file = stack.enter_context((folder / LOCKED).open())
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def held_policy(ledger: Ledger, which: str) -> Iterator[Policy]:
    """Choose a policy by `Policies.chosen`, and keep the run from deleting it during the block.

    If the run deletes the chosen policy before it is held, choose again.
    """
    former, policy = None, ledger.policies.chosen(which)
    while policy != former:
        with held(Path(policy.path)):
            if policy in ledger.policies.on_disk():
                yield policy
                return
        former, policy = policy, ledger.policies.chosen(which)
    yield policy


@contextmanager
def deletable(folder: Path) -> Iterator[bool]:
    """Yield whether no command holds the policy in `folder`. No command can hold it before the end of the block."""
    if not (folder / LOCKED).exists():
        yield True
        return
    with (folder / LOCKED).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
