"""Where an engine's process serves each policy of a run."""


def served_at(policy: str, first: str) -> str:
    """Return the path below the process's address; the run's first trained policy has the address itself."""
    return "" if policy == first else f"/policies/{policy}"
