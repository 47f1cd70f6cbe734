"""Continuous batching: which requests run in the next step. Knows no threads.

Every step is one forward pass: a token for each request that decodes, and chunks of prompts, so that a long prompt
stalls nobody. A request joins and leaves at any step. Request i owns row i. What a row holds is kept when its prompt is
complete and when it leaves; a newcomer starts from the longest prefix that is known, and waits a step for one that is
just being computed. When the rows outgrow their memory, the request with the least in its row goes back to wait.
"""

import time
from collections import deque

import torch

from quartet.engine.base import Counters
from quartet.engine.forward import Forward, Span
from quartet.engine.prefix_cache import MIN_TOKENS, PrefixCache
from quartet.engine.running import Running
from quartet.engine.sampling import sample
from quartet.errors import ConfigError, EngineError
from quartet.types import FinishReason

MAX_PREFILL_TOKENS = 512
"""Prompt tokens of one step: bounds how long running requests wait for newcomers."""
MIXED = -1
"""`first_version` of a row that weights of several versions computed; no policy has it."""


class Scheduler:
    """Owns the waiting and the running requests."""

    def __init__(
        self, forward: Forward, max_slots: int, version: int, max_prefix_bytes: int, max_row_bytes: int
    ) -> None:
        """Raises `ConfigError` when `max_row_bytes` are too few for one request that fills the context."""
        self.version = version
        """Stamps every token sampled from now on."""
        self.counters = Counters()
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self._forward, self._max_slots, self._max_row_bytes = forward, max_slots, max_row_bytes
        longest = forward.rows.max_context_tokens
        if (needed := forward.rows.num_bytes(1, longest)) > max_row_bytes:
            raise ConfigError(
                f"keys and values of one request that fills the context of {longest} tokens take "
                f"{needed / 2**20:,.0f} MB, more than engine.kv_cache_megabytes = {max_row_bytes / 2**20:,.0f}",
                "raise it, or lower engine.max_context_tokens",
            )
        self._prefixes = PrefixCache(forward.rows, max_prefix_bytes)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def serve(self, version: int, *, recompute: bool) -> None:
        """The weights are those of `version` now. Prefixes of other weights are forgotten.

        With `recompute` the rows of running requests are computed again, in chunks beside whoever decodes; otherwise
        they keep what other weights computed, and their tokens say so. After a roll-back, when `version` is lower, they
        begin again: versions only grow along a response, and what they have is of a policy that is no more.
        """
        rolled_back = version < self.version
        self.version = version
        self._prefixes.clear()
        if rolled_back:
            for entry in [*self.waiting, *self.running]:
                entry.begin_again()
        for entry in self.running:
            if recompute or rolled_back:
                entry.give_up_row()
                entry.first_version = entry.oldest_version = version
            else:
                entry.first_version = MIXED

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
        """One forward pass, and a token for every request whose prompt is complete."""
        started = time.perf_counter()
        self._admit()
        self._make_room()
        budget, spans = MAX_PREFILL_TOKENS, []
        for entry in self.running:
            spans.append(entry.next_span(budget))
            if not entry.decodes:
                budget -= len(spans[-1].token_ids)
        logits_NV = self._forward.extend(spans)
        ready: list[int] = []
        for row, (entry, span) in enumerate(zip(self.running, spans, strict=True)):
            entry.held += len(span.token_ids)
            if entry.held == entry.length:
                ready.append(row)
        if len(ready) < len(spans):
            logits_NV = logits_NV[ready]
        self._count(spans, started)
        self._extend([self.running[row] for row in ready], logits_NV)

    def _count(self, spans: list[Span], started: float) -> None:
        again = sum(
            max(min(span.start + len(span.token_ids), entry.recompute_until) - span.start, 0)
            for entry, span in zip(self.running, spans, strict=True)
        )
        self.counters.steps += 1
        if again:
            share = again / sum(len(span.token_ids) for span in spans)
            self.counters.recomputed_tokens += again
            self.counters.recompute_ms += share * 1e3 * (time.perf_counter() - started)

    def _admit(self) -> None:
        """Give rows to the oldest waiting requests, as long as this step has room for their prompts."""
        prefilling = [entry for entry in self.running if not entry.decodes]
        budget = MAX_PREFILL_TOKENS - sum(entry.length - entry.held for entry in prefilling)
        for entry in list(self.waiting):
            if len(self.running) >= self._max_slots or budget <= 0:
                return
            fresh = [other for other in prefilling if not other.sampled.token_ids]
            if self._prefixes.max_bytes and self._more_is_computed_now(entry.request.prompt_ids, fresh):
                continue
            if not self._rows_fit([*self.running, entry]):
                return
            self._start(entry)
            prefilling.append(entry)
            budget -= entry.length - entry.held

    def _start(self, entry: Running) -> None:
        """Move a waiting request into the next row, with what is known of its tokens."""
        self.waiting.remove(entry)
        self.running.append(entry)
        self._forward.rows.fit(len(self.running), _longest(self.running))
        # The last token is always computed: its logits are what is wanted.
        entry.held = self._prefixes.copy_into(len(self.running) - 1, entry.known_ids()[:-1])
        entry.first_version = entry.oldest_version = self.version
        if not entry.started:
            entry.started = True
            self.counters.prompt_tokens += entry.length
            self.counters.reused_tokens += entry.held

    def _make_room(self) -> None:
        """Let those with the least in their rows wait again until the rows of the others fit; one alone always does."""
        while not self._rows_fit(self.running):
            entry = min(self.running, key=lambda running: running.held)
            self._keep(entry)
            self._free_row(entry)
            entry.give_up_row()
            self.waiting.appendleft(entry)
            self.counters.put_back += 1
        self._forward.rows.fit(len(self.running), _longest(self.running))

    def _rows_fit(self, entries: list[Running]) -> bool:
        """Whether there is memory for these rows, grown by the token that comes next."""
        return self._forward.rows.num_bytes(len(entries), _longest(entries)) <= self._max_row_bytes

    def _more_is_computed_now(self, prompt_ids: list[int], prefilling: list[Running]) -> bool:
        """Whether a prompt has more in common with one in prefill than is known of it."""
        end = self._prefixes.num_known(prompt_ids) + MIN_TOKENS
        return len(prompt_ids) > end and any(other.request.prompt_ids[:end] == prompt_ids[:end] for other in prefilling)

    def _extend(self, entries: list[Running], logits_NV: torch.Tensor) -> None:
        """Sample one token for each entry and let the finished ones leave."""
        if not entries:
            return
        samplings, positions = [entry.request.sampling for entry in entries], [entry.length for entry in entries]
        sampled = sample(logits_NV, samplings, positions, _forbidden(entries))
        self._fail_not_finite([entry for entry, finite in zip(entries, sampled.finite, strict=True) if not finite])
        for entry, token, logprob, entropy, finite in zip(entries, *sampled, strict=True):
            if not finite:
                continue
            if not entry.sampled.token_ids:
                self._keep(entry)
            self.counters.generated_tokens += 1
            if reason := entry.take(token, logprob, entropy, self.version):
                self._leave(entry)
                entry.finish(entry.result(reason))

    def _keep(self, entry: Running) -> None:
        """Remember a row, unless weights of different versions computed it."""
        if entry.first_version == self.version:
            self._prefixes.keep(self.running.index(entry), entry.known_ids()[: entry.held])

    def _fail_not_finite(self, entries: list[Running]) -> None:
        # All rows are cleared before the first one moves: a copy of NaN would outlive its request.
        for entry in entries:
            self._forward.rows.clear(self.running.index(entry))
        for entry in entries:
            self._remove(entry)
            what = f"request {entry.request.request_id!r}, policy version {self.version}"
            entry.finish(
                EngineError(
                    f"the model's logits are NaN or infinite at position {entry.length} ({what})",
                    "the weights are damaged or training diverged: look at train/gradient_norm, go back a policy",
                )
            )

    def _leave(self, entry: Running) -> None:
        """Take an entry out; what its row holds is kept for the conversation's next turn."""
        if entry in self.waiting:
            self.waiting.remove(entry)
            self.counters.requests += entry.started
            return
        self._keep(entry)
        self._remove(entry)

    def _remove(self, entry: Running) -> None:
        self.counters.requests += 1
        self._free_row(entry)

    def _free_row(self, entry: Running) -> None:
        """The last row moves into its place so that rows stay without gaps."""
        row, last = self.running.index(entry), self.running.pop()
        if last is not entry:
            self.running[row] = last
            self._forward.rows.move(len(self.running), row, last.held)


def _longest(entries: list[Running]) -> int:
    return max(entry.length for entry in entries)


def _forbidden(entries: list[Running]) -> dict[int, list[int]]:
    """By index, the stop tokens of those whose response is too short to end."""
    short = [row for row, e in enumerate(entries) if len(e.sampled.token_ids) < e.request.sampling.min_tokens]
    return {row: entries[row].request.stop_token_ids for row in short}
