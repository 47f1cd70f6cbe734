"""Continuous batching: which requests run in the next step, and what each has so far. Knows no threads.

One `step` prefills a batch of waiting prompts if there is room, then decodes one token for every running request. A
request joins and leaves at any step. Running requests keep their order: request i owns row i of the cache.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from msgspec import Struct

from quartet.errors import EngineError
from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.forward import Forward
from quartet.rollout.engine.sampling import sample
from quartet.types import FinishReason

MAX_PREFILL_TOKENS = 512
"""Padded tokens of one prefill: bounds how long running requests wait for newcomers. A longer prompt goes alone. On a
CPU more is no faster per token (measured: 1 M parameters, one core, 3.7 ms per prompt in twos, 4.5 in eights)."""
MAX_LENGTH_RATIO = 1.5
"""Prompts padded together differ at most by this factor in length."""


@dataclass(slots=True, eq=False)
class Running:
    """One request in the engine."""

    request: GenerateRequest
    max_tokens: int
    """At least 1; already limited by the room the context leaves."""
    finish: Callable[[GenerateResult | EngineError], None]
    """Called once, in the step thread."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Prompt and response tokens so far = position of the next token."""
        return len(self.request.prompt_ids) + len(self.token_ids)

    def result(self, reason: FinishReason) -> GenerateResult:
        return GenerateResult(
            token_ids=self.token_ids, logprobs=self.logprobs, versions=self.versions, finish_reason=reason
        )


class Counters(Struct):
    """Totals since the engine started, for metrics."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0


class Scheduler:
    """Owns the waiting and the running requests; `version` stamps every token sampled from now on."""

    def __init__(self, forward: Forward, max_slots: int, version: int) -> None:
        self.version = version
        self.counters = Counters()
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self._forward, self._max_slots = forward, max_slots

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, entry: Running) -> None:
        self.waiting.append(entry)

    def abort(self, request_id: str) -> None:
        """End a request with what it has; unknown ids are ignored: it may have just finished."""
        for entry in [*self.waiting, *self.running]:
            if entry.request.request_id == request_id:
                self._leave(entry)
                entry.finish(entry.result(FinishReason.ABORT))

    def fail_all(self, error: EngineError) -> None:
        """End every request with `error`."""
        for entry in [*self.waiting, *self.running]:
            entry.finish(error)
        self.waiting.clear()
        self.running.clear()

    def step(self) -> None:
        """Prefill newcomers, then decode one token for each running request."""
        self.counters.steps += 1
        if newcomers := self._next_prefill():
            first_row = len(self.running)
            self.running += newcomers
            logits = self._forward.prefill([entry.request.prompt_ids for entry in newcomers], first_row)
            self.counters.prompt_tokens += sum(len(e.request.prompt_ids) for e in newcomers)
            self._extend(newcomers, logits)
        if self.running:
            tokens = [entry.token_ids[-1] for entry in self.running]
            logits = self._forward.decode(tokens, [entry.length - 1 for entry in self.running])
            self._extend(list(self.running), logits)

    def _next_prefill(self) -> list[Running]:
        """The oldest waiting request and the waiting ones of similar length, as free slots and the bound allow."""
        batch: list[Running] = []
        free = self._max_slots - len(self.running)
        shortest = longest = len(self.waiting[0].request.prompt_ids) if self.waiting else 0
        for entry in list(self.waiting):
            length = len(entry.request.prompt_ids)
            low, high = min(shortest, length), max(longest, length)
            fits = not batch or (high <= MAX_LENGTH_RATIO * low and high * (len(batch) + 1) <= MAX_PREFILL_TOKENS)
            if len(batch) < free and fits:
                shortest, longest = low, high
                batch.append(entry)
                self.waiting.remove(entry)
        return batch

    def _extend(self, entries: list[Running], logits_NV: torch.Tensor) -> None:
        """Sample one token for each entry and let the finished ones leave."""
        sampled = sample(logits_NV, [e.request.sampling for e in entries], [e.length for e in entries])
        self._fail_not_finite([entry for entry, finite in zip(entries, sampled.finite, strict=True) if not finite])
        for entry, token, logprob, finite in zip(entries, *sampled, strict=True):
            if not finite:
                continue
            entry.token_ids.append(token)
            entry.logprobs.append(logprob)
            entry.versions.append(self.version)
            self.counters.generated_tokens += 1
            if reason := _finish_reason(entry):
                self._leave(entry)
                entry.finish(entry.result(reason))

    def _fail_not_finite(self, entries: list[Running]) -> None:
        # All rows are cleared before the first one moves: a copy of NaN would outlive its request.
        for entry in entries:
            self._forward.cache.clear_row(self.running.index(entry))
        for entry in entries:
            self._leave(entry)
            what = f"request {entry.request.request_id!r}, policy version {self.version}"
            entry.finish(
                EngineError(
                    f"the model's logits are NaN or infinite at position {entry.length} ({what})",
                    "the weights are damaged or training diverged: look at grad_norm, start from an earlier policy",
                )
            )

    def _leave(self, entry: Running) -> None:
        """Take an entry out; the last row moves into its place so that rows stay without gaps."""
        if entry in self.waiting:
            self.waiting.remove(entry)
            return
        self.counters.requests += 1
        row, last = self.running.index(entry), self.running.pop()
        if last is not entry:
            self.running[row] = last
            self._forward.cache.move_row(len(self.running), row, last.length)


def _finish_reason(entry: Running) -> FinishReason | None:
    if entry.token_ids[-1] in entry.request.stop_token_ids:
        return FinishReason.STOP
    return FinishReason.LENGTH if len(entry.token_ids) == entry.max_tokens else None
