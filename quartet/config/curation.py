"""Settings of curation: filters of finished groups, and replay of earlier successes."""

from quartet.config.choice import Choice
from quartet.config.section import LocalPath, Positive
from quartet.types import ReplayRule


class Filter(Choice):
    """Filter of groups before training."""

    kind = "filter"


class Replay(Choice):
    """Replay of earlier rollouts."""

    kind = "replay"
    name: str = "none"
    """Name of the replay: `quartet parts replay` lists them."""
    entries_per_task: Positive = 8
    """Number of newest successes stored per task."""
    demonstrations: LocalPath = ""
    """File of successes that are in the pool from the start: chat-format JSONL whose lines name their task, or an
    export by `quartet ledger export`. With several trained policies only the first one replays demonstrations. Format
    and checks: docs/exchange.md."""
    demonstration_rule: ReplayRule = ReplayRule.RECOMPUTE
    """Importance weight of demonstrations. `recompute` sets it to 1. `stored` computes it from the recorded log-probs.
    Chats have no log-probs, so `stored` needs trajectories that a Quartet policy sampled."""
