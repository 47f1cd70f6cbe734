"""Settings of stragglers: rollouts that take much longer than the others of their group or batch."""

from quartet.config.choice import Choice


class Straggler(Choice):
    """Rule for rollouts that take much longer than the others. No group waits for them longer than
    `admission.group_deadline_seconds`."""

    kind = "straggler"
    name: str = "none"
    """Name of the straggler rule: `quartet parts straggler` lists them."""
