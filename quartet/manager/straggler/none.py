"""Every rollout runs to its end."""

from quartet.manager.straggler.base import StragglerRule


class NoRule(StragglerRule):
    """Every rollout runs to its end, at most until the deadline of its group; nothing waits for it meanwhile."""
