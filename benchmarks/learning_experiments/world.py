"""A world for a table of probabilities: tasks, and the policy that plays them."""

import random
from abc import abstractmethod
from collections.abc import Sequence

from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import Table, TablePolicy
from quartet.types import GroupMember, Trajectory


class World(Table):
    """Tasks with few tokens."""

    @abstractmethod
    def play(self, episode: Episode, task: int) -> Trajectory:
        """Play one rollout of a task; rollouts of the same task are compared."""


class WorldPolicy(TablePolicy):
    """The trained table of a world, and rollouts of the world's tasks."""

    def __init__(self, world: World, settings: Sequence[str], seed: int, delay_train_steps: int | None = None) -> None:
        super().__init__(world, settings, seed, delay_train_steps)
        self._world, self._draw = world, random.Random(seed)

    def roll_out(self, tasks: Sequence[int], rollouts_per_group: int) -> list[list[GroupMember]]:
        """Return one group per task."""
        groups = []
        for task in tasks:
            members = []
            for number in range(rollouts_per_group):
                episode = Episode(self, self._draw)
                members.append(GroupMember(rollout_id=number, trajectory=self._world.play(episode, task)))
                self.tokens += episode.tokens
            groups.append(members)
        return groups

    def success(self, tasks: Sequence[int], rollouts_per_task: int) -> float:
        """Return the share of successes among further rollouts, which are not trained and do not count as tokens."""
        draw = random.Random(f"evaluation {self.recipe.seed}")
        played = [self._world.play(Episode(self, draw), task) for task in tasks for _ in range(rollouts_per_task)]
        return sum(trajectory.success for trajectory in played) / len(played)
