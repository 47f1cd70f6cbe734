"""Manifests of a run for other schedulers, one file each. All make the same Ray cluster from the placement plan."""
