"""Growth of memory between two kills, in megabytes per thousand episodes."""

import statistics
from collections import defaultdict

MIN_SAMPLES, MIN_EPISODES = 4, 100
"""Minimum number of samples in the second half of a life, and of episodes between them, for a slope."""
MAX_MEGABYTES_PER_1000_EPISODES = 50.0
"""Largest slope that counts as flat. The 6,000 rollouts of the recipe `miniwob` then add at most 300 MB."""


class Growth:
    """Samples of the memory of one role, such as the browser. A kill begins another life of it."""

    def __init__(self) -> None:
        self._lives: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self._life = 0

    def kill(self) -> None:
        """Begin another life."""
        self._life += 1

    def add(self, episode: int, megabytes: float) -> None:
        """Add a sample."""
        self._lives[self._life].append((episode, megabytes))

    def slope(self) -> float | None:
        """Return the median slope over the lives; None if all lives are too short.

        The first half of a life is left out: pages, caches and heaps are filled in it.
        """
        slopes = []
        for samples in self._lives.values():
            late = samples[len(samples) // 2 :]
            if len(late) >= MIN_SAMPLES and late[-1][0] - late[0][0] >= MIN_EPISODES:
                episodes, sizes = zip(*late, strict=True)
                slopes.append(1000 * statistics.linear_regression(episodes, sizes).slope)
        return round(statistics.median(slopes), 2) if slopes else None

    def flat(self) -> bool:
        """Return whether the slope is within the bound, or unknown."""
        slope = self.slope()
        return slope is None or slope <= MAX_MEGABYTES_PER_1000_EPISODES

    def largest(self) -> float:
        """Return the largest sample."""
        return round(max((size for samples in self._lives.values() for _, size in samples), default=0.0), 1)
