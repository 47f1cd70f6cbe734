"""The place in a parent rollout at which a child rollout begins."""

from msgspec import Struct


class Fork(Struct, frozen=True, kw_only=True):
    """A fork point: a child begins after one of its parent's calls."""

    rollout_id: int
    """The parent rollout."""
    part: str = ""
    """`Trajectory.part` of the parent's trajectory that holds the call."""
    call_index: int
    """Index in that trajectory's `calls` of the last call that parent and child share."""
