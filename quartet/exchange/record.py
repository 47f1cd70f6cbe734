"""Exported form of a trajectory: its contents, its provenance, and the fingerprint of its tokens."""

from msgspec import Struct

from quartet.exchange.fingerprint import Fingerprint
from quartet.types import Purpose, Trajectory


class Provenance(Struct, frozen=True, kw_only=True):
    """Origin of a trajectory."""

    run: str
    """Name of the run's folder."""
    purpose: Purpose
    rollout_id: int
    group_id: int
    attempt: int
    created_at: float
    """Unix seconds."""


class TrajectoryRecord(Struct, frozen=True, kw_only=True, tag_field="format", tag="quartet-trajectory-2"):
    """Trajectory with total reward, provenance and fingerprint, in the current format of files."""

    trajectory: Trajectory
    reward: float
    provenance: Provenance
    fingerprint: Fingerprint | None
    """Fingerprint of the run. None if the run recorded none; its trajectories can then be read, but not replayed in
    another run."""

    @classmethod
    def of(cls, trajectory: Trajectory, provenance: Provenance, fingerprint: Fingerprint | None) -> "TrajectoryRecord":
        return cls(trajectory=trajectory, reward=trajectory.reward, provenance=provenance, fingerprint=fingerprint)
