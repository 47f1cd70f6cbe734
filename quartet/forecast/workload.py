"""Mean amounts of work in one rollout."""

from msgspec import Struct


class Workload(Struct, frozen=True, kw_only=True):
    """Means over rollouts of one run."""

    turns: float
    prompt_tokens_per_turn: float
    """Prompt tokens of a turn that the engine computes, without those in its prefix cache."""
    response_tokens_per_turn: float
    context_tokens: float
    """Tokens whose keys and values a request holds while it decodes."""
    step_seconds: float
    """Duration of one environment step."""
    reset_seconds: float
    """Duration of the reset before the first turn."""

    @property
    def think_seconds(self) -> float:
        """Seconds per turn that a rollout spends in its environment."""
        return self.step_seconds + self.reset_seconds / self.turns

    @property
    def tokens_per_turn(self) -> float:
        """Tokens of a turn that engine and trainer compute: each computed prompt token and each response token once."""
        return self.prompt_tokens_per_turn + self.response_tokens_per_turn

    @property
    def trained_tokens(self) -> float:
        """Tokens per rollout that the trainer computes."""
        return self.turns * self.tokens_per_turn
