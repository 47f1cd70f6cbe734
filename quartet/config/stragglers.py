"""Settings of stragglers: rollouts that take much longer than the others of their group or batch."""

from quartet.config.choice import Choice


class Straggler(Choice):
    """What happens to rollouts that take much longer than the others. `admission.group_deadline_seconds` bounds it."""

    kind = "straggler"
    name: str = "none"
    """Which one: `quartet parts straggler` lists them."""
