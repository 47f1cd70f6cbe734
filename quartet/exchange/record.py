"""A trajectory as it leaves the ledger: everything it holds, where it came from, and what its tokens mean."""

from msgspec import Struct

from quartet.exchange.fingerprint import Fingerprint
from quartet.types import Purpose, Trajectory


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a trajectory came from."""

    run: str
    """Name of the run's folder."""
    purpose: Purpose
    rollout_id: int
    group_id: int
    attempt: int
    created_at: float
    """Unix seconds."""


class TrajectoryRecord(Struct, frozen=True, kw_only=True, tag_field="format", tag="quartet-trajectory-2"):
    """A trajectory with its reward summed up, its provenance and its fingerprint."""

    trajectory: Trajectory
    reward: float
    provenance: Provenance
    fingerprint: Fingerprint | None
    """None for a run that recorded none: its trajectories can be read, but not be replayed elsewhere."""

    @classmethod
    def of(cls, trajectory: Trajectory, provenance: Provenance, fingerprint: Fingerprint | None) -> "TrajectoryRecord":
        return cls(trajectory=trajectory, reward=trajectory.reward, provenance=provenance, fingerprint=fingerprint)
