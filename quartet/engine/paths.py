"""URL paths at which an engine process serves the policies of a run."""


def served_at(policy: str, first: str) -> str:
    """Return the policy's path below the process's address; it is empty for the run's first trained policy."""
    return "" if policy == first else f"/policies/{policy}"
