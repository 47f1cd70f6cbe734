"""Strategies on a table of probabilities: rounds and forks are those of the parts, and a run takes two seconds.

The policy is that of the learning experiments: the next token depends on the last one alone, and packing, credit, loss
and optimizer are those of a real run. Engine, environment and ledger are left out. Every press is one token.
"""

import random
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from benchmarks.learning_experiments.base import Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import Table, TablePolicy, logits_of
from benchmarks.strategies.contrast import Course, train_on_contrast
from quartet.ledger.rows import FamilyStats, GroupOutcome
from quartet.manager.control.base import ControlContext, RolloutAllocator
from quartet.registry import build
from quartet.rollout.brancher.base import Brancher
from quartet.types import Call, Fork, Group, GroupMember, Observation, Root, Round, TakenAction, Task, Trajectory

_NOTHING = FamilyStats(rollouts=0, successes=0, mean_reward=0.0, mean_turns=0.0, mean_response_tokens=0.0)


class Pages(Table):
    """Tasks of equally many pages. Of the `buttons` of a page, the first is right; a task succeeds if all presses are.

    Every turn has a second page, on which the policy is right with the probability `guided` at first; guided rollouts
    read it. A second button may be right, too: it has the share `second` of the right presses at first.
    """

    def __init__(self, chances_QT: np.ndarray, *, buttons: int = 4, guided: float = 0.0, second: float = 0.0) -> None:
        self.chances_QT, self._buttons, self._guided, self._second = chances_QT, buttons, guided, second
        self._pages = chances_QT.size
        self.right = [2 * self._pages, 2 * self._pages + 1][: 2 if second else 1]
        """Tokens of the right buttons."""

    def logits(self) -> np.ndarray:
        guided = np.where(self.chances_QT < 1, self._guided or self.chances_QT, 1.0)
        chances = [*self.chances_QT.ravel().tolist(), *guided.ravel().tolist()]
        return logits_of(
            {page: self._row(chance) for page, chance in enumerate(chances)}, 2 * self._pages + self._buttons
        )

    def play(self, episode: Episode, task: int, shared: Sequence[int], *, guided: bool) -> Trajectory:
        """Play a rollout whose first presses are `shared` with its parent, or whose pages are guided ones."""
        success, seen = True, list[tuple[int, int]]()
        for turn in range(self.chances_QT.shape[1]):
            second = self.reads_second_page(guided=guided, right=success)
            episode.show(self.page(task, turn) + self._pages * second)
            if turn < len(shared):
                episode.say([shared[turn]], [0.0], 0)
                episode.tokens -= 1
                press = shared[turn]
            else:
                (press,) = episode.respond()
            success &= press in self.right
            seen.append((self.page(task, turn), press))
        episode.reward(float(success))
        trajectory = episode.end(success=success)
        turns = [
            replace(
                turn,
                observation=Observation(goal="", text=str(page)),
                response=str(press),
                actions=[TakenAction(canonical=str(press))],
            )
            for turn, (page, press) in zip(trajectory.turns, seen, strict=True)
        ]
        return replace(trajectory, turns=turns)

    def reads_second_page(self, *, guided: bool, right: bool) -> bool:
        """Return whether a rollout reads the second page of its turn: by default a guided one. `right` is true if all
        presses so far were right."""
        return guided

    def page(self, task: int, turn: int) -> int:
        """Return the token of a page."""
        return task * self.chances_QT.shape[1] + turn

    def successes(self, policy: TablePolicy) -> np.ndarray:
        """Return the policy's probability of success at each task."""
        tasks, turns = self.chances_QT.shape
        chances = [
            [sum(policy.chance(self.page(task, turn), button) for button in self.right) for turn in range(turns)]
            for task in range(tasks)
        ]
        return np.prod(chances, axis=1)

    def _row(self, chance: float) -> dict[int, float]:
        first = 2 * self._pages
        if chance >= 1:
            return {first: 1.0}
        right = {first: chance * (1 - self._second)} | ({first + 1: chance * self._second} if self._second else {})
        wrong = range(first + len(right), first + self._buttons)
        return right | dict.fromkeys(wrong, (1 - chance) / len(wrong))


class Manager:
    """The allocator of a run, with what it may know: outcomes and successes of earlier groups. A family is a task."""

    def __init__(self, world: Pages, policy: TablePolicy, seed: int) -> None:
        self._world, self._policy, self._draw = world, policy, random.Random(f"rollouts {seed}")
        self._outcomes: defaultdict[str, list[GroupOutcome]] = defaultdict(list)
        self._solved: dict[int, Trajectory] = {}
        self._ids = count(1)
        context = ControlContext(
            recipe=policy.recipe,
            families=[_family(task) for task in range(len(world.chances_QT))],
            statistics=lambda: {family: self._statistics(family) for family in self._outcomes},
            family_statistics=self._statistics,
            solved_elsewhere=lambda task, most: [
                solved for seed, solved in reversed(self._solved.items()) if seed != task.seed
            ][:most],
            train_step=lambda: policy.version,
            groups_admitted=lambda: sum(map(len, self._outcomes.values())),
        )
        self._allocator: RolloutAllocator = build(policy.recipe.control.allocator, context)
        self._brancher: Brancher = build(policy.recipe.rollout.brancher)

    def group(self, number: int) -> list[GroupMember]:
        """Play all rounds of a group, with the forks that the brancher asks for."""
        task = Task(env="bandit", family=_family(number), seed=number)
        members: list[GroupMember] = []
        more: Round = self._allocator.plan(task)
        while more:
            for one in more:
                self._add(task, one, members)
            more = self._allocator.more(Group(group_id=1, task=task, members=members))
        self._judge(task, members)
        return members

    def _add(self, task: Task, one: Root | Fork, members: list[GroupMember]) -> None:
        """Play a rollout and its forks, and add them to the members."""
        member = self._member(task, one, members)
        members.append(member)
        calls, most = member.trajectory.calls, self._policy.recipe.rollout.brancher.max_forks_per_group
        for index in range(1, len(calls)) if self._brancher.may_fork else ():
            own = bool(calls[index].own_response)
            for _ in range(self._brancher.forks(calls[index], calls[:index]) if own else 0):
                if sum(other.trajectory.parent is not None for other in members) < most:
                    self._add(task, Fork(rollout_id=member.rollout_id, call_index=index - 1), members)

    def _member(self, task: Task, one: Root | Fork, members: Sequence[GroupMember]) -> GroupMember:
        episode, guided, shared = Episode(self._policy, self._draw), False, []
        if isinstance(one, Root):
            guided = one.guided
        else:
            parent = next(member.trajectory for member in members if member.rollout_id == one.rollout_id)
            shared = parent.calls[: one.call_index + 1]
        presses = [call.response_ids[0] for call in shared]
        played = self._world.play(episode, task.seed, presses, guided=guided)
        self._policy.tokens += episode.tokens
        calls = [replace(call, borrowed=len(call.prompt_ids) + 1) for call in shared]
        calls += [self._with_entropy(call) for call in played.calls[len(shared) :]]
        if shared:  # as in a run: the prompt of a child's first own call is its parent's
            calls[len(shared)] = replace(calls[len(shared)], borrowed=len(calls[len(shared)].prompt_ids))
        if guided:
            calls = [replace(call, train_prompt_ids=self._plain(call.prompt_ids)) for call in calls]
        trajectory = replace(played, task=task, calls=calls, parent=one if isinstance(one, Fork) else None)
        return GroupMember(rollout_id=next(self._ids), trajectory=trajectory)

    def _with_entropy(self, call: Call) -> Call:
        entropy_nats = self._policy.entropy_nats(call.prompt_ids[-1])
        return replace(call, response=replace(call.response, entropies=[entropy_nats]))

    def _plain(self, ids: Sequence[int]) -> list[int]:
        pages = self._world.chances_QT.size
        return [token - pages if pages <= token < 2 * pages else token for token in ids]

    def _judge(self, task: Task, members: Sequence[GroupMember]) -> None:
        successes = [member.trajectory for member in members if member.trajectory.success]
        if successes:
            self._solved[task.seed] = successes[-1]
        outcome = GroupOutcome(
            countable=len(members),
            successes=len(successes),
            mixed=0 < len(successes) < len(members),
            judged_at_step=self._policy.version,
            max_turns=self._world.chances_QT.shape[1],
        )
        self._outcomes[task.family].insert(0, outcome)

    def _statistics(self, family: str) -> FamilyStats:
        outcomes = self._outcomes[family][:8]
        countable, successes = (sum(getattr(one, name) for one in outcomes) for name in ("countable", "successes"))
        return replace(_NOTHING, outcomes=outcomes, rollouts=countable, successes=successes)


def draws_of(world: Pages, policy: TablePolicy, seed: int) -> Callable[[], list[GroupMember]]:
    """Return a function that plays a group of a task drawn uniformly."""
    manager, draw = Manager(world, policy, seed), random.Random(f"tasks {seed}")
    return lambda: manager.group(draw.randrange(len(world.chances_QT)))


def _family(task: int) -> str:
    return f"task {task}"


GRPO = ("control.rollouts_per_group=8", "train.groups_per_batch=16", "loss.terms.ppo_clip.importance=none")
"""Settings of the baseline, besides its learning rate."""


class TableStrategy(Experiment):
    """The first arm is the baseline. The first claim is the one that decides whether the strategy helps.

    The learning rate 3.2 was tuned for the baselines of `trace`, `best` and both suites of `branch_grpo`: success per
    token rises with every doubling that was tried, on seeds 0 to 2, and gains less than a point after 3.2. A large step
    costs nothing on a table, since tasks share no probabilities. The other tables have the same rate.
    """

    figures: ClassVar = {
        "area": Figure("success, mean over the run, %", 1, 100),
        "end": Figure("success at the end, %", 1, 100),
        "mixed": Figure("groups with different rewards, %", 0, 100),
        "contrasts": Figure("groups with different rewards per 1,000 tokens", 1, 1000),
        "hopeless": Figure("success at the end of tasks below 1 % at first, %", 1, 100),
    }

    @abstractmethod
    def world(self, seed: int) -> Pages:
        """Return the tasks of a seed."""

    def run(self, settings: Settings, seed: int) -> Measured:
        world = self.world(seed)
        policy = TablePolicy(world, settings, seed)
        course = train_on_contrast(
            policy,
            self.budget_tokens,
            draws_of(world, policy, seed),
            lambda: {"success": world.successes(policy).mean()},
        )
        return Measured(figures=self.measured(world, policy, course), tokens=policy.tokens)

    def measured(self, world: Pages, policy: TablePolicy, course: Course) -> dict[str, float]:
        """Return the figures of a run."""
        hopeless_Q = world.chances_QT.prod(axis=1) < 0.01
        at_end_Q = world.successes(policy)
        return {
            "area": course.mean("success"),
            "end": course.end("success"),
            "mixed": sum(course.mixed) / len(course.mixed),
            "contrasts": sum(course.mixed) / policy.tokens,
            "hopeless": float(at_end_Q[hopeless_Q].mean()) if hopeless_Q.any() else 0.0,
        }
