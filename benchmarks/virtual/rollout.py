"""One rollout in virtual time: reset, then turns of generation and step, then the reward."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.engine import Request, VirtualEngine
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.scenario import Kind, drawn
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    RolloutLease,
    Sampling,
    Status,
    TokenColumns,
    Trajectory,
    Turn,
)


@dataclass
class Sampled:
    """Calls of a rollout, over all its attempts: what a recalled rollout continues from."""

    tokens: list[int] = field(default_factory=list)
    """Number of tokens of each call; the last call may be unfinished."""
    versions: dict[str, list[int]] = field(default_factory=dict)
    """Versions of each policy in the order of sampling."""


_SEEN = Turn(observation=Observation(goal="", text=""), call_index=0, response="")


class VirtualRollout:
    """One attempt. Its draws follow from the rollout's seed, so that systems are compared on the same work."""

    def __init__(
        self,
        clock: VirtualClock,
        fleet: Fleet,
        kind: Kind,
        lease: RolloutLease,
        progress: Callable[["VirtualRollout"], None],
        done: Callable[["VirtualRollout"], None],
        sampled: Sampled,
    ) -> None:
        self._clock, self._fleet, self._kind = clock, fleet, kind
        self._progress, self._done = progress, done
        self.lease, self.began, self.renewed = lease, clock.now, clock.now
        self.turns, self.environment_seconds, self.recalled, self.failed = 0, 0.0, False, False
        self.paused = False
        """True if the rollout was recalled to be continued."""
        self._draw = Random(lease.sampling_seed)
        attempt_draw = Random(f"{lease.sampling_seed}.{lease.attempt}")
        self._hangs = attempt_draw.random() < kind.hang_share
        self._pace = kind.slow_factor if attempt_draw.random() < kind.slow_share else 1.0
        turns = round(drawn(kind.workload.turns, kind.spread.turns, self._draw))
        self.num_turns = min(max(turns, 1), kind.max_turns, lease.max_turns)
        self.sampled = sampled
        self._policies = fleet.policies
        self._generating: tuple[VirtualEngine, Request] | None = None
        self.reset_seconds = drawn(kind.workload.reset_seconds, kind.spread.reset, self._draw)
        self._act(self.reset_seconds, processor_seconds=0.0)

    def recall(self, *, paused: bool = False) -> None:
        """End the attempt now or, within an environment step, after this step. If it is `paused`, another attempt
        continues from its tokens."""
        self.recalled, self.paused = True, paused
        if self._generating is not None:
            engine, request = self._generating
            if tokens := engine.abort(request):
                self._add(tokens, engine)
            self._done(self)

    def records(self, *, last_call_only: bool) -> list[Trajectory]:
        """Return the records for the ledger, one for each policy."""
        ended = not self.failed and not self.recalled
        success = ended and self._kind.succeeds(self.lease.task, self._draw)
        status = Status.COMPLETED if ended else Status.ERROR_ENV if self.failed else Status.CANCELLED
        return [
            Trajectory(
                task=self.lease.task,
                status=status,
                calls=[self._call(policy, last_call_only=last_call_only)],
                turns=[_SEEN] * len(range(index, self.turns, len(self._policies))),
                rewards={"task": float(success)} if ended else {},
                success=success,
                policy=policy,
                part=policy if index else "",
            )
            for index, policy in enumerate(self._policies)
        ]

    def _call(self, policy: str, *, last_call_only: bool) -> Call:
        """Return one call with one token per version of the policy, since lengths are counted elsewhere."""
        sampled = self.sampled.versions.get(policy, [])
        versions = sampled[-1:] if last_call_only else sorted(set(sampled))
        tokens = TokenColumns(token_ids=[1] * len(versions), logprobs=[-1.0] * len(versions), versions=versions)
        return Call(
            policy=policy, prompt_ids=[1], response=tokens, sampling=Sampling(), finish_reason=FinishReason.STOP
        )

    def _act(self, seconds: float, processor_seconds: float) -> None:
        """Spend `seconds` in the environment, and before them `processor_seconds` on a processor."""
        self.environment_seconds += seconds + processor_seconds
        self._fleet.processors.serve(processor_seconds, lambda: self._clock.after(seconds, self._acted))

    def _acted(self) -> None:
        if self.recalled or self.failed:
            self._done(self)
        elif self.turns == self.num_turns:
            self._fleet.rewards.serve(self._kind.reward_seconds, lambda: self._done(self))
        else:
            self._generate()

    def _generate(self) -> None:
        self._progress(self)
        if self.recalled:
            self._done(self)
            return
        mean, variation = self._kind.workload.response_tokens_per_turn, self._kind.spread.response
        tokens = min(round(drawn(mean, variation, self._draw)), self._kind.max_response_tokens or sys.maxsize)
        self._ask(tokens)

    def _ask(self, tokens: int) -> None:
        """Ask an engine for what is left of a response of `tokens` tokens."""
        before = self.sampled.tokens[self.turns] if self.turns < len(self.sampled.tokens) else 0
        if before and before >= tokens:
            self._step()
            return
        family = self.lease.task.family
        engine = self._fleet.routing.pick(family, self._fleet.engines)
        request = engine.generate(
            family, tokens - before, self._answered, lambda: self._lost(tokens), sampled_before=before
        )
        self._generating = engine, request

    def _lost(self, tokens: int) -> None:
        """Ask another engine for the same response; its tokens on the engine that left are lost."""
        self._generating = None
        self._progress(self)
        if self.recalled:
            self._done(self)
        else:
            self._ask(tokens)

    def _add(self, tokens: int, engine: VirtualEngine) -> None:
        """Add tokens to the call of this turn."""
        calls = self.sampled.tokens
        calls += [0] * (self.turns + 1 - len(calls))
        calls[self.turns] += tokens
        policy = self._policies[self.turns % len(self._policies)]
        self.sampled.versions.setdefault(policy, []).append(engine.versions[policy])

    def _answered(self) -> None:
        assert self._generating is not None
        engine, request = self._generating
        self._add(request.tokens, engine)
        self._generating = None
        self._clock.after(engine.latency_seconds, self._step)

    def _step(self) -> None:
        self.turns += 1
        whole = self._pace * drawn(self._kind.workload.step_seconds, self._kind.spread.step, self._draw)
        if self._hangs:
            self.failed, whole = True, self._kind.hang_seconds
        on_processor = min(self._kind.processor_seconds, whole)
        self._act(whole - on_processor, on_processor)
