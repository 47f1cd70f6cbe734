"""Where a rollout begins inside another one."""

from msgspec import Struct


class Fork(Struct, frozen=True, kw_only=True):
    """The place in a parent rollout at which a child begins: after one of the parent's calls."""

    rollout_id: int
    """The parent."""
    part: str = ""
    """The parent's trajectory that holds the call: its `Trajectory.part`."""
    call_index: int
    """Index in that trajectory's `calls`: the last call that parent and child share."""
