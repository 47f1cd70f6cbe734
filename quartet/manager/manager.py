"""Data manager: close and filter groups, queue evaluations, admit groups, enforce the disk budget, and end training.

All its essential state is in the ledger, so it can be killed and restarted at any time.
"""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from shlex import quote

from quartet.config import Recipe
from quartet.env import suite_families, train_tasks
from quartet.errors import ConfigError, SetupError
from quartet.exchange.demonstrations import settle
from quartet.files.lock import ProcessLock
from quartet.ledger import Ledger
from quartet.manager.admission import Admission
from quartet.manager.clock import TrainingClock
from quartet.manager.control.base import ControlContext, RolloutAllocator, TaskSampler
from quartet.manager.evaluation import PeriodicEvaluation, is_evaluation
from quartet.manager.judge import Judge
from quartet.manager.replay.base import Replay
from quartet.manager.retention import Retention
from quartet.manager.stop import StopRule
from quartet.manager.straggler.base import StragglerRule
from quartet.manager.task_quarantine import TaskQuarantine
from quartet.manager.tightest_horizon import TightestHorizon
from quartet.registry import build
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Fork, Group, GroupState, RolloutPlan, Round, Task
from quartet.types.phase import TRAINING, wait_in

SWEEP_SECONDS = 10.0
"""Interval between checks of the disk budget."""


class DataManager:
    """Loop of ticks: close and filter groups, record and queue evaluations, apply the stop rule, admit groups, keep the
    disk budget.

    `families` overrides the recipe's task families. Raises `ConfigError` for an unknown part name.
    """

    def __init__(
        self,
        recipe: Recipe,
        ledger: Ledger,
        recorder: Recorder,
        presence: Presence,
        *,
        families: list[str] | None = None,
    ) -> None:
        self._recipe, self._ledger, self._recorder, self._presence = recipe, ledger, recorder, presence
        families = families or suite_families(recipe.env)
        window = recipe.control.statistics_window_rollouts
        self._quarantine = TaskQuarantine(recipe, ledger)
        context = ControlContext(
            recipe=recipe,
            families=families,
            train_tasks=train_tasks(recipe.env, families),
            statistics=lambda: ledger.statistics.families(window),
            family_statistics=lambda family: ledger.statistics.family(family, window),
            train_step=ledger.batches.train_step,
            quarantined=self._quarantine.holds,
            groups_admitted=ledger.groups.admitted,
            solved_elsewhere=ledger.pool.solved_elsewhere,
        )
        self._sampler: TaskSampler = build(recipe.control.sampler, context)
        self._allocator: RolloutAllocator = build(recipe.control.allocator, context)
        self._adds_rounds = type(self._allocator).more is not RolloutAllocator.more
        horizons = [build(choice, context) for choice in recipe.control.horizon]
        self._horizon = TightestHorizon(horizons, recipe.rollout.max_turns)
        filters = {choice.name: build(choice) for choice in recipe.filters}
        self._judge = Judge(ledger, filters, recipe.admission.min_rollouts_per_group)
        self._replays: dict[str, Replay] = {one.policy: build(recipe.replay, recipe, one) for one in ledger.each()}
        self._stragglers: StragglerRule = build(recipe.straggler, recipe)
        self._admission = Admission(recipe, ledger, self._stragglers)
        self._evaluation = PeriodicEvaluation(recipe, ledger, recorder, families)
        self._retention = Retention(recipe.disk, ledger, ledger.run_dir)
        self._sweep_at = 0.0
        self._training_clock = TrainingClock(ledger, ledger.now(), counts=self._trains())
        self._stop_rule = StopRule(recipe.train, ledger)

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until `stop` is set; after a tick without changes wait for a notification."""
        with self._ledger.notifier.subscribe("manager") as notifications:
            while not stop.is_set():
                await (asyncio.sleep(0) if self.tick() else notifications.wait(stop))
        self._training_clock.save()

    def tick(self) -> bool:
        """Run one round; return True if anything changed. Outside the training phase nothing new is started."""
        self._presence.beat()
        self._count_time()
        changed = self._expire() | self._close_groups() | self._evaluation.record_finished()
        phase = self._ledger.value("phase", TRAINING)
        if phase == TRAINING:
            changed |= self._train()
        else:
            self._presence.waits(*wait_in(phase, "the training phase", "it begins"))
        self._sweep()
        self._count_time()  # the clock ends with the request to stop, which this tick may have made
        return changed

    def _count_time(self) -> None:
        self._training_clock.tick(self._ledger.now(), counts=self._trains())

    def _trains(self) -> bool:
        return self._ledger.value("phase", TRAINING) == TRAINING and self._ledger.stop_reason() is None

    def _train(self) -> bool:
        """End training, or queue a due evaluation and admit groups; return whether anything changed.

        The end of training would cut off an evaluation that is due at the last train step.
        """
        train_step = self._ledger.batches.least_train_step()
        if self._stop_rule.ending(train_step):
            self._presence.waits("the end of training", "the train step in progress is committed")
            return False
        return self._evaluation.admit_due(train_step) | self._admit()

    def _expire(self) -> bool:
        self._ledger.modules.expire()
        rollouts = self._ledger.rollouts.expire(self._recipe.rollout.max_attempts)
        return bool(self._ledger.batches.expire()) | bool(rollouts)

    def _close_groups(self) -> bool:
        self._ledger.rollouts.begin_missed_groups()
        closable = self._ledger.groups.closable(self._recipe.admission.group_deadline_seconds)
        ended = self._ledger.groups.ended_rounds() if closable and self._adds_rounds else []
        for group_id in closable:
            if group_id in ended:
                self._ledger.groups.end_round(group_id, self._more)
            else:
                self._ledger.groups.close(group_id)
        closed = self._ledger.groups.closed()
        for group_id in closed:
            self._decide(group_id)
        return bool(closable or closed)

    def _more(self, group: Group) -> Round:
        """Return the allocator's next round.

        Raises `ConfigError` if the round has a fork but the allocator does not declare `may_fork`, because the run's
        environment and policies were then not checked for forks.
        """
        more = self._allocator.more(group)
        if not self._allocator.may_fork and any(isinstance(one, Fork) for one in more):
            name = self._recipe.control.allocator.name
            raise ConfigError(
                f"the allocator {name!r} forks, but does not declare it", "set `may_fork = True` in its class"
            )
        return more

    def _decide(self, group_id: int) -> None:
        with self._recorder.span("judge", trace=f"group {group_id}"):
            self._judge_group(group_id)

    def _judge_group(self, group_id: int) -> None:
        group = self._ledger.groups.load(group_id)
        replay = self._replays[group.policy]
        composed = replay.compose(group)
        # Successes are stored before the decision, so that a kill in between repeats the decision and loses no success.
        replay.observe(group)
        state, reason = self._judge.decide(group, composed)
        if group.policy == self._ledger.policy:  # control follows the first policy only
            self._sampler.observe(group)
            self._quarantine.observe(group)
        members = [member.trajectory for member in group.members]
        self._recorder.metric(
            "data",
            group_id=group_id,
            family=group.task.family,
            seed=group.task.seed,
            group_trainable=state is GroupState.TRAINABLE,
            dropped=reason,
            rollouts=self._ledger.rollouts.ended_in_training(),
            group_members=len(members),
            group_replayed=sum(member.replay is not None for member in composed.members),
            group_successes=sum(member.success for member in members),
            group_reward_mean=sum(member.reward for member in members) / len(members) if members else None,
            **self._sampler.measures(group.task),
        )

    def _admit(self) -> bool:
        capacity = self._admission.capacity()
        if not capacity.groups:
            self._presence.waits(capacity.waiting_for, capacity.ends_when)
            return False
        self._presence.working("admitting groups")
        with self._recorder.span("admit", groups=capacity.groups):
            tasks = self._sampler.pick(capacity.groups)
            admitted = [self._admit_group(task, capacity.versions_behind) for task in tasks]
        return any(admitted)

    def _admit_group(self, task: Task, versions_behind: int) -> bool:
        """Admit a group for the task. Return False if, since the capacity was computed, a policy was committed that the
        engines must load first."""
        quorum = self._stragglers.quorum(len(self._allocator.plan(task)))
        plan = RolloutPlan(
            task=task,
            num_rollouts=quorum.queued,
            enough=quorum.enough,
            max_turns=self._horizon.max_turns(task),
            temperature=self._recipe.rollout.temperature,
        )
        settled = self._admission.settled_only
        return self._ledger.groups.admit_if(plan, versions_behind=versions_behind, settled=settled)

    def _sweep(self) -> None:
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_SECONDS
        self._ledger.disk.shorten_log()
        if reason := self._retention.sweep():
            self._ledger.request_stop(reason)


def manager_lock(run_dir: Path) -> ProcessLock:
    """Return the lock of the run's only data manager. It raises `SetupError` if another process holds it."""

    stop = f"quartet stop {quote(str(run_dir))}"

    def refusal(process: str) -> SetupError:
        return SetupError(
            f"{run_dir} already has a manager: process {process}",
            f"start one manager per run; `quartet train` does it, and `{stop}` ends the run",
        )

    return ProcessLock(run_dir / "manager.lock", refusal)


async def run_manager(recipe: Recipe, run_dir: Path, stop: asyncio.Event) -> None:
    """Run the data manager as a process until `stop` is set.

    Unless the run is an evaluation, first store the recipe's demonstrations (`settle`). Raises `SetupError` if the run
    has another manager, and all errors of `settle`.
    """
    with (
        manager_lock(run_dir),
        closing(Ledger.open(run_dir)) as ledger,
        Recorder(run_dir, "manager") as recorder,
    ):
        presence = Presence(ledger.modules, "manager", recorder=recorder)
        if not is_evaluation(run_dir):  # an evaluation replays and exports nothing
            settle(recipe, ledger, presence.beat)
        await DataManager(recipe, ledger, recorder, presence).run(stop)
