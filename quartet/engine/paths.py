"""URL path of each policy that an engine process serves."""


def served_at(policy: str, first: str) -> str:
    """Return the policy's path after the process's address; it is empty for the run's first trained policy."""
    return "" if policy == first else f"/policies/{policy}"
