"""One rollout in virtual time: reset, then turns of generation and step, then the reward."""

from collections.abc import Callable
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
    ) -> None:
        self._clock, self._fleet, self._kind = clock, fleet, kind
        self._progress, self._done = progress, done
        self.lease, self.began, self.renewed = lease, clock.now, clock.now
        self.turns, self.environment_seconds, self.recalled = 0, 0.0, False
        self._draw = Random(lease.sampling_seed)
        turns = round(drawn(kind.workload.turns, kind.spread.turns, self._draw))
        self.num_turns = min(max(turns, 1), kind.max_turns, lease.max_turns)
        self._versions: list[int] = []
        self._generating: tuple[VirtualEngine, Request] | None = None
        self.reset_seconds = drawn(kind.workload.reset_seconds, kind.spread.reset, self._draw)
        self._act(self.reset_seconds, processor_seconds=0.0)

    def recall(self) -> None:
        """End the attempt now or, within an environment step, after this step."""
        self.recalled = True
        if self._generating is not None:
            engine, request = self._generating
            engine.abort(request)
            self._done(self)

    def record(self, *, last_call_only: bool) -> Trajectory:
        """Return the record for the ledger: one token per policy version, since lengths are counted elsewhere."""
        versions = self._versions[-1:] if last_call_only else sorted(set(self._versions))
        tokens = TokenColumns(token_ids=[1] * len(versions), logprobs=[-1.0] * len(versions), versions=versions)
        call = Call(prompt_ids=[1], response=tokens, sampling=Sampling(), finish_reason=FinishReason.STOP)
        success = self._kind.succeeds(self.lease.task, self._draw)
        return Trajectory(
            task=self.lease.task,
            status=Status.COMPLETED,
            calls=[call],
            turns=[_SEEN] * self.turns,
            rewards={"task": float(success)},
            success=success,
        )

    def _act(self, seconds: float, processor_seconds: float) -> None:
        """Spend `seconds` in the environment, and before them `processor_seconds` on a processor."""
        self.environment_seconds += seconds + processor_seconds
        self._fleet.processors.serve(processor_seconds, lambda: self._clock.after(seconds, self._acted))

    def _acted(self) -> None:
        if self.recalled:
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
        family = self.lease.task.family
        engine = self._fleet.routing.pick(family, self._fleet.engines)
        tokens = round(drawn(mean, variation, self._draw))
        self._generating = engine, engine.generate(family, tokens, self._answered)

    def _answered(self) -> None:
        assert self._generating is not None
        self._versions.append(self._generating[0].version)
        self._generating = None
        self.turns += 1
        whole = drawn(self._kind.workload.step_seconds, self._kind.spread.step, self._draw)
        on_processor = min(self._kind.processor_seconds, whole)
        self._act(whole - on_processor, on_processor)
