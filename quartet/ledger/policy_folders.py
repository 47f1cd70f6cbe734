"""Where a run keeps what each of its policies' trainers writes."""

from pathlib import Path

from quartet.types import MAIN

POLICIES = "policies"
"""The folder of a run that holds what it trained."""


def own_folder(policy: str) -> str:
    """Return the policy's folder within the run's folders for policies and checkpoints; `main` has them to itself."""
    return "" if policy == MAIN else policy


def policies_root(run_dir: Path, policy: str = MAIN) -> Path:
    """Return the folder that holds the published versions of one policy."""
    return run_dir / POLICIES / own_folder(policy)
