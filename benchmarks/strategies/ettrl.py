"""Do ETTRL's forks give labels as good as those of as many independent votes, for three fifths of the tokens (TTRL)?"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from benchmarks.learning_experiments.base import Claim, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.strategies.base import higher
from benchmarks.strategies.contrast import train_on_contrast
from benchmarks.strategies.table import Manager, Pages, TableStrategy, draws_of
from quartet.train.votes import agreement
from quartet.types import GroupMember, TakenAction, Trajectory

TASKS, TURNS = 24, 6
FIRST_LABEL_SEED = 1_000_000
"""First seed of the rollouts that measure the labels of the initial policy; training has others."""


class Answers(Pages):
    """Tasks whose answer is the sequence of all presses; it is right if each press is."""

    def play(self, episode: Episode, task: int, shared: Sequence[int], *, guided: bool) -> Trajectory:
        trajectory = super().play(episode, task, shared, guided=guided)
        answer = TakenAction(canonical=" ".join(turn.response for turn in trajectory.turns))
        return replace(trajectory, turns=[*trajectory.turns[:-1], replace(trajectory.turns[-1], actions=[answer])])


class Main(TableStrategy):
    """24 tasks of six presses, each of which is right with a chance between 0.45 and 0.9 at first, so that most labels
    are right.

    No reward is read: the most frequent answer of a group is its label. 64 independent votes, as TTRL has them, against
    12 rollouts with two forks of two children each, as ETTRL has them, and against as many independent votes as have
    the tokens of these 60. Every arm labels each task twice with the initial policy, and then trains. Groups of fewer
    tokens take more train steps from the same budget, which favours the forks over 64 votes.
    """

    votes_of_equal_tokens: ClassVar[int] = 36
    arms: ClassVar = {
        "ttrl": [],
        "equal tokens": [f"control.rollouts_per_group={votes_of_equal_tokens}"],
        "forks": [
            *("control.allocator=ettrl", "control.allocator.calls=2", "control.allocator.children=2"),
            "control.rollouts_per_group=12",
        ],
    }
    common = (
        *("control.rollouts_per_group=64", "train.groups_per_batch=4", "loss.terms.ppo_clip.importance=none"),
        *("filters=[]", "credit.name=majority_vote", "train.learning_rate=3.2"),
    )
    figures: ClassVar = {
        "area": Figure("success, mean over the run, %", 1, 100),
        "end": Figure("success at the end, %", 1, 100),
        "labels": Figure("right labels of the initial policy, %", 1, 100),
        "labels_of_run": Figure("right labels, mean over the run, %", 1, 100),
        "cost": Figure("tokens of a vote, % of a rollout", 1, 100),
        "train_steps": Figure("train steps"),
    }
    claims = (
        higher("ETTRL's forks: more success per token than 64 independent votes", "forks", "ttrl"),
        higher(
            "ETTRL's forks: more success per token than independent votes of as many tokens", "forks", "equal tokens"
        ),
        Claim(
            text="ETTRL's forks: at most 3 points fewer right labels than 64 independent votes",
            arm="forks",
            against="ttrl",
            figure="labels",
            above=-0.03,
        ),
        higher(
            "ETTRL's forks: more right labels than independent votes of as many tokens",
            *("forks", "equal tokens", "labels"),
        ),
    )
    budget_tokens = 16_000

    def world(self, seed: int) -> Answers:
        return Answers(chances(seed))

    def run(self, settings: Settings, seed: int) -> Measured:
        world = self.world(seed)
        initial = TablePolicy(world, settings, seed)
        manager = Manager(world, initial, FIRST_LABEL_SEED + seed)
        groups = [manager.group(task) for task in [*range(TASKS)] * 2]
        policy, labelled = TablePolicy(world, settings, seed), list[bool]()
        draw_group = draws_of(world, policy, seed)

        def group() -> list[GroupMember]:
            members = draw_group()
            labelled.append(label_is_right(members))
            return members

        course = train_on_contrast(
            policy,
            self.budget_tokens,
            group,
            lambda: {"success": world.successes(policy).mean()},
            has_contrast=answers_differ,
        )
        figures = {
            "area": course.mean("success"),
            "end": course.end("success"),
            "labels": float(np.mean([label_is_right(members) for members in groups])),
            "labels_of_run": float(np.mean(labelled)),
            "cost": initial.tokens / TURNS / sum(map(len, groups)),
            "train_steps": policy.version,
        }
        return Measured(figures=figures, tokens=policy.tokens)


def chances(seed: int) -> np.ndarray:
    """Return the initial probability of a right press, for every task and turn."""
    return np.random.default_rng(seed).uniform(0.45, 0.9, (TASKS, TURNS))


def label_is_right(members: Sequence[GroupMember]) -> bool:
    """Return whether the most frequent answer of a group is the right one."""
    agrees_K = agreement(np.array([_answer(member) for member in members]))
    return any(agrees and member.trajectory.success for agrees, member in zip(agrees_K, members, strict=True))


def answers_differ(members: Sequence[GroupMember]) -> bool:
    """Return whether a group has two different answers; else no advantage differs from 0."""
    return len({_answer(member) for member in members}) > 1


def _answer(member: GroupMember) -> str:
    return member.trajectory.turns[-1].actions[-1].canonical
