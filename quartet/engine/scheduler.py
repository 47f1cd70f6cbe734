"""Continuous batching: selects the requests of each decode step. Uses no threads.

A step is one forward pass. It covers one token of each decoding request, and chunks of prompts (chunked prefill), so
that a long prompt does not delay other requests. Requests join and leave at any step. Request i of `running` owns row i
of the KV cache. A row is copied to the prefix cache when its prompt is complete, and when its request leaves. A new
request starts from its longest cached prefix; it waits while another request computes a longer prefix of its prompt. If
the rows exceed their memory, the request with the fewest tokens in its row is preempted.
"""

import time
from collections import deque

import torch

from quartet.engine.base import Counters
from quartet.engine.forward import Forward, Span
from quartet.engine.model_inputs import TextInputs
from quartet.engine.prefix_cache import MIN_TOKENS, PrefixCache
from quartet.engine.running import Running
from quartet.engine.sampling import sample
from quartet.errors import ConfigError, EngineError, RefusedRequestError
from quartet.types import FinishReason

MAX_PREFILL_TOKENS = 512
"""Maximum number of prompt tokens in a step, except that every request in prefill gets at least one. It limits how long
new requests delay running ones."""
MIXED = -1
"""`first_version` of a row that several policy versions computed; no policy has this version."""


class Scheduler:
    """Waiting and running requests of one engine, and their rows."""

    def __init__(
        self,
        forward: Forward,
        inputs: TextInputs,
        max_slots: int,
        version: int,
        max_prefix_bytes: int,
        max_row_bytes: int,
    ) -> None:
        """Raise `ConfigError` if `max_row_bytes` cannot hold one request that fills the context."""
        self.version = version
        """Policy version that is recorded with each sampled token."""
        self.counters = Counters()
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self._forward, self._inputs, self._max_slots, self._max_row_bytes = forward, inputs, max_slots, max_row_bytes
        longest = forward.rows.max_context_tokens
        if (needed := forward.rows.num_bytes(1, longest)) > max_row_bytes:
            raise ConfigError(
                f"keys and values of one request that fills the context of {longest} tokens take "
                f"{needed / 2**20:,.0f} MB, more than engine.kv_cache_megabytes = {max_row_bytes / 2**20:,.0f}",
                "raise engine.kv_cache_megabytes, or lower engine.max_context_tokens",
            )
        self._prefixes = PrefixCache(forward.rows, max_prefix_bytes)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def cache_use(self, entries: list[Running]) -> float:
        """Return the memory that rows for all `entries` would take, as a share of the memory for rows. Any thread may
        call this."""
        return self._forward.rows.num_bytes(len(entries), _longest(entries)) / self._max_row_bytes if entries else 0.0

    def serve(self, version: int, *, recompute: bool) -> None:
        """Record new tokens as sampled by `version`, whose weights have just been loaded, and empty the prefix cache.

        With `recompute`, the rows of running requests are computed again in chunks, while other requests decode.
        Otherwise the rows keep the keys and values of the former weights, and new tokens record the oldest version in
        their row. After a rollback (`version` is lower than before) all requests begin again, because their tokens
        belong to a discarded policy and versions must not decrease along a response.
        """
        rolled_back = version < self.version
        self.version = version
        self._prefixes.clear()
        self._inputs.weights_changed()
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
        """End a request with the tokens sampled so far. Ignore an unknown id, whose request may have just finished."""
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
        """Run one forward pass, then sample a token for each request whose prompt is complete."""
        started = time.perf_counter()
        self._admit()
        self._make_room()
        spans = self._next_spans()
        if not spans:
            return
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

    def _next_spans(self) -> list[Span]:
        """Return the next span of each running request. A request whose pictures cannot be read fails and leaves."""
        budget, spans = MAX_PREFILL_TOKENS, []
        while len(spans) < len(self.running):
            entry = self.running[len(spans)]
            try:
                spans.append(self._inputs.complete(entry, entry.next_span(budget)))
            except RefusedRequestError as error:
                self._remove(entry)  # the last request may take its place
                entry.finish(error)
                continue
            if not entry.decodes:
                budget -= len(spans[-1].token_ids)
        return spans

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
        """Assign rows to waiting requests, oldest first, as long as this step has room for their prompts."""
        prefilling = [entry for entry in self.running if not entry.decodes]
        budget = MAX_PREFILL_TOKENS - sum(entry.length - entry.held for entry in prefilling)
        for entry in list(self.waiting):
            if len(self.running) >= self._max_slots or budget <= 0:
                return
            fresh = [other for other in prefilling if not other.sampled.token_ids]
            if self._prefixes.max_bytes and self._more_is_computed_now(entry.prompt_contents, fresh):
                continue
            if not self._rows_fit([*self.running, entry]):
                return
            self._start(entry)
            prefilling.append(entry)
            budget -= entry.length - entry.held

    def _start(self, entry: Running) -> None:
        """Move a waiting request into the next row, filled with the cached prefix of its tokens."""
        self.waiting.remove(entry)
        self.running.append(entry)
        self._forward.rows.fit(len(self.running), _longest(self.running))
        # The last token is always computed, because its logits are needed.
        entry.held = self._prefixes.copy_into(len(self.running) - 1, entry.known_contents()[:-1])
        entry.first_version = entry.oldest_version = self.version
        if not entry.started:
            entry.started = True
            self.counters.prompt_tokens += entry.length
            self.counters.reused_tokens += entry.held

    def _make_room(self) -> None:
        """Preempt requests, those with the fewest tokens in their rows first, until the rest fits into memory.

        A single row always fits.
        """
        while not self._rows_fit(self.running):
            entry = min(self.running, key=lambda running: running.held)
            self._keep(entry)
            self._free_row(entry)
            entry.give_up_row()
            self.waiting.appendleft(entry)
            self.counters.put_back += 1
        self._forward.rows.fit(len(self.running), _longest(self.running))

    def _rows_fit(self, entries: list[Running]) -> bool:
        """Return whether the rows of `entries` fit into memory after each has grown by its next token."""
        return self._forward.rows.num_bytes(len(entries), _longest(entries)) <= self._max_row_bytes

    def _more_is_computed_now(self, contents: list[int], prefilling: list[Running]) -> bool:
        """Return whether a request in prefill computes a prefix of a prompt that is at least `MIN_TOKENS` longer than
        the cached one."""
        end = self._prefixes.num_known(contents) + MIN_TOKENS
        return len(contents) > end and any(other.prompt_contents[:end] == contents[:end] for other in prefilling)

    def _extend(self, entries: list[Running], logits_NV: torch.Tensor) -> None:
        """Sample one token for each entry and remove finished entries."""
        if not entries:
            return
        samplings, positions = [entry.request.sampling for entry in entries], [entry.length for entry in entries]
        sampled = sample(self._inputs.without_placeholders(logits_NV), samplings, positions, _forbidden(entries))
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
        """Copy a request's row to the prefix cache if only the present policy version computed it."""
        if entry.first_version == self.version:
            self._prefixes.keep(self.running.index(entry), entry.known_contents()[: entry.held])

    def _fail_not_finite(self, entries: list[Running]) -> None:
        # Clear all these rows before any row is moved, since a copied NaN would outlive its request.
        for entry in entries:
            self._forward.rows.clear(self.running.index(entry))
        for entry in entries:
            self._remove(entry)
            what = f"request {entry.request.request_id!r}, policy version {self.version}"
            entry.finish(
                EngineError(
                    f"the model's logits are NaN or infinite at position {entry.length} ({what})",
                    "check train/gradient_norm, and use an earlier policy: training diverged, or weights are damaged",
                )
            )

    def _leave(self, entry: Running) -> None:
        """Remove a request and copy its row to the prefix cache, for the conversation's next turn."""
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
        """Free a request's row, and move the last row to the freed place, so that the rows stay contiguous."""
        row, last = self.running.index(entry), self.running.pop()
        if last is not entry:
            self.running[row] = last
            self._forward.rows.move(len(self.running), row, last.held)


def _longest(entries: list[Running]) -> int:
    return max(entry.length for entry in entries)


def _forbidden(entries: list[Running]) -> dict[int, list[int]]:
    """Return, by row, the stop tokens that must not be sampled before `min_tokens` is reached."""
    short = [row for row, e in enumerate(entries) if len(e.sampled.token_ids) < e.request.sampling.min_tokens]
    return {row: entries[row].request.stop_token_ids for row in short}
