"""Episode in which a repaired action takes the place of the failed attempts before it."""

from difflib import SequenceMatcher

from msgspec.structs import replace

from quartet.env.base import Env
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import BuildPrompt, Episode, built
from quartet.rollout.loop.base import Limits
from quartet.types import Call, Observation, Outcome, Prompt, StepResult, Task, TokenColumns, Turn


class PurifiedEpisode(Episode):
    """Episode that forgets failed turns as soon as a retry succeeds (CLEANER's rollback).

    A failed turn has an error, no action that was done, and no reward, so the environment is as it was before. The
    repaired turn gets the observation and the training prompt of the first failed one. Its log-probs were sampled after
    the errors, so the trainer computes them again. Later prompts show no error. After more than `max_retries`
    failures in a row the failures stay, and the episode forgets nothing any more.
    """

    def __init__(
        self,
        task: Task,
        env: Env,
        model: ModelClient,
        limits: Limits,
        *,
        max_retries: int,
        similarity: float,
        mark: str,
    ) -> None:
        """`max_retries`, `similarity` and `mark` are the settings of the loop `cleaner`."""
        super().__init__(task, env, model, limits)
        self._max_retries, self._similarity, self._mark = max_retries, similarity, mark
        self._forgets = True

    async def prompt(self, build_prompt: BuildPrompt, observation: Observation) -> Prompt:
        """Return the prompt for an observation, which continues the repaired conversation."""
        return await built(build_prompt(self.as_trained(), observation))

    async def take_turn(self, observation: Observation, prompt: Prompt | list[int]) -> StepResult:
        """Take a turn; if it repairs the failed turns before it, put it in their place."""
        result = await super().take_turn(observation, prompt)
        failures = self._failures()
        if failures > self._max_retries:
            self._forgets = False
        elif self._forgets and not _failed(self.turns[-1]):
            self._forget(self._failures(before=1))
        return result

    def _failures(self, before: int = 0) -> int:
        """Return the number of failed turns in a row at the end, without the last `before` turns."""
        turns = self.turns[: len(self.turns) - before]
        return next((count for count, turn in enumerate(reversed(turns)) if not _failed(turn)), len(turns))

    def _forget(self, failures: int) -> None:
        """Put the last turn in the place of the failures before it."""
        first, repaired = self.turns[-1 - failures], self.turns[-1]
        old, new = self.model.calls[first.call_index], self.model.calls[repaired.call_index]
        if not failures or new.media:  # places of pictures differ in the prompt of the first failure
            return
        response = self._response(old, new)
        call = replace(new, train_prompt_ids=old.trained_prompt_ids, response=response)
        self.model.calls[first.call_index :] = [call]
        text = self.model.renderer.decode(response.token_ids)
        repaired = replace(repaired, observation=first.observation, call_index=first.call_index, response=text)
        self.turns[-1 - failures :] = [repaired]

    def _response(self, old: Call, new: Call) -> TokenColumns:
        """Return the repaired response. If both calls are similar, it keeps the text before the failed one."""
        begin, again = self._begin_of_action(old), self._begin_of_action(new)
        if begin is None or again is None:
            return new.response
        decode = self.model.renderer.decode
        failed, repaired = decode(old.response_ids[begin:]), decode(new.response_ids[again:])
        if SequenceMatcher(None, failed, repaired).ratio() < self._similarity:
            return new.response
        return old.response[:begin] + new.response[again:]

    def _begin_of_action(self, call: Call) -> int | None:
        """Return the number of tokens before the mark; None if it is missing or begins within a token."""
        decode = self.model.renderer.decode
        before, found, _ = decode(call.response_ids).partition(self._mark) if self._mark else ("", "", "")
        lengths = range(len(call.response_ids)) if found else ()
        return next((length for length in lengths if decode(call.response_ids[:length]) == before), None)


def _failed(turn: Turn) -> bool:
    return bool(turn.error) and not turn.reward and all(action.outcome is not Outcome.DONE for action in turn.actions)
