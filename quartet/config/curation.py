"""Settings of curation: which finished groups are trained on, and what is trained on again."""

from quartet.config.choice import Choice
from quartet.config.section import LocalPath, Positive
from quartet.types import ReplayRule


class Filter(Choice):
    """What is worth training on."""

    kind = "filter"


class Replay(Choice):
    """What was seen before and is trained on again."""

    kind = "replay"
    name: str = "none"
    """Which one: `quartet parts replay` lists them."""
    entries_per_task: Positive = 8
    """Newest successes of a task that are stored."""
    demonstrations: LocalPath = ""
    """File of successes that are in the pool from the start: chat-format JSONL whose lines name their task, or what
    `quartet ledger export` writes. Of several trained policies the first replays them. Format and checks:
    docs/exchange.md."""
    demonstration_rule: ReplayRule = ReplayRule.RECOMPUTE
    """What the importance weight of a demonstration is taken from: `recompute` nothing (weight 1), `stored` its
    recorded log-probs, which only a Quartet policy has; a chat has none."""
