"""Folders of a run for the policies that its trainers write."""

from pathlib import Path

from quartet.types import MAIN

POLICIES = "policies"
"""Name of the folder of a run that holds its trained policies."""


def own_folder(policy: str) -> str:
    """Return the policy's subfolder in the run's folders of policies and checkpoints; empty for `main`."""
    return "" if policy == MAIN else policy


def policies_root(run_dir: Path, policy: str = MAIN) -> Path:
    """Return the folder that holds the published versions of one policy."""
    return run_dir / POLICIES / own_folder(policy)
