"""Settings of stragglers: rollouts that take much longer than the others of their group or batch."""

from quartet.config.choice import Choice


class Straggler(Choice):
    """Rule for rollouts that take much longer than the others. `admission.group_deadline_seconds` bounds it."""

    kind = "straggler"
    name: str = "none"
    """Name of the straggler rule: `quartet parts straggler` lists them."""
