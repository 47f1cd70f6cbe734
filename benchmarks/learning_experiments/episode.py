"""Records of rollouts on a table of probabilities."""

import random
from collections.abc import Collection, Sequence

from benchmarks.learning_experiments.table import TablePolicy
from quartet.types import (
    Call,
    FinishReason,
    GroupMember,
    Observation,
    ReplayRule,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)

_SAMPLING = Sampling()
_PAGE = Observation(goal="", text="")


class Episode:
    """One rollout in progress: what was shown and said so far, and the rewards of its turns."""

    def __init__(self, policy: TablePolicy, draw: random.Random) -> None:
        self._policy, self.draw = policy, draw
        self._shown: list[int] = []
        self._calls: list[Call] = []
        self._turns: list[Turn] = []
        self.tokens = 0
        """Number of tokens that the policy said."""

    def show(self, *tokens: int) -> None:
        """Append an observation."""
        self._shown += tokens

    def respond(self, max_tokens: int = 1, ends: Collection[int] = ()) -> list[int]:
        """Sample a response up to a token of `ends`, or of `max_tokens` tokens, and return it."""
        last, said, logprobs = self._shown[-1], [], []
        while len(said) < max_tokens and (not said or last not in ends):
            last, logprob = self._policy.sample(last, self.draw)
            said.append(last)
            logprobs.append(logprob)
        self.say(said, logprobs, self._policy.version)
        return said

    def say(self, tokens: Sequence[int], logprobs: Sequence[float], version: int) -> None:
        """Append a response."""
        self._calls.append(
            Call(
                prompt_ids=self._shown,
                response=TokenColumns(
                    token_ids=list(tokens), logprobs=list(logprobs), versions=[version] * len(tokens)
                ),
                sampling=_SAMPLING,
                finish_reason=FinishReason.STOP,
            )
        )
        self._shown = [*self._shown, *tokens]
        self.tokens += len(tokens)
        self.reward(0.0)

    def reward(self, value: float) -> None:
        """Set the reward of the last turn."""
        turn = Turn(observation=_PAGE, call_index=len(self._calls) - 1, response="", rewards={"task": value})
        self._turns[len(self._calls) - 1 :] = [turn]

    def end(self, *, success: bool, truncated: bool = False) -> Trajectory:
        """Return the record of the rollout."""
        return Trajectory(
            task=Task(env="bandit", family="table", seed=0),
            status=Status.TRUNCATED_TOKENS if truncated else Status.COMPLETED,
            calls=self._calls,
            turns=self._turns,
            rewards={"task": sum(turn.reward for turn in self._turns)},
            success=success,
        )


def demonstration(shown: Sequence[int], said: Sequence[int]) -> GroupMember:
    """Return a demonstration of one turn as an anchor: a member that is imitated and gets no credit."""
    call = Call(
        prompt_ids=list(shown),
        response=TokenColumns(token_ids=list(said)),
        sampling=_SAMPLING,
        finish_reason=FinishReason.STOP,
    )
    trajectory = Trajectory(
        task=Task(env="bandit", family="table", seed=0),
        status=Status.COMPLETED,
        calls=[call],
        turns=[],
        rewards={"task": 1.0},
        success=True,
    )
    return GroupMember(rollout_id=1_000_000, trajectory=trajectory, replay=ReplayRule.ANCHOR)
