"""Growth of memory while nothing is killed, in megabytes per thousand episodes."""

import statistics

MIN_SAMPLES, MIN_EPISODES = 4, 100
"""Minimum number of samples for a slope, and of episodes between them."""
MAX_MEGABYTES_PER_1000_EPISODES = 50.0
"""Largest slope that counts as flat. The 6,000 rollouts of the recipe `miniwob` then add at most 300 MB."""


class Growth:
    """Samples of the memory of one role, such as the browser."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, float]] = []

    def add(self, episode: int, megabytes: float) -> None:
        """Add a sample."""
        self._samples.append((episode, megabytes))

    def slope(self, first: int) -> float | None:
        """Return the slope from the episode `first` on; None if too few samples are left.

        A browser whose heaps and caches are still being filled grows in any case, so the first episode is later.
        """
        late = [sample for sample in self._samples if sample[0] >= first]
        if len(late) < MIN_SAMPLES or late[-1][0] - late[0][0] < MIN_EPISODES:
            return None
        episodes, sizes = zip(*late, strict=True)
        return round(1000 * statistics.linear_regression(episodes, sizes).slope, 2)

    def flat(self, first: int) -> bool:
        """Return whether the slope is within the bound, or unknown."""
        slope = self.slope(first)
        return slope is None or slope <= MAX_MEGABYTES_PER_1000_EPISODES

    def largest(self) -> float:
        """Return the largest sample."""
        return round(max((size for _, size in self._samples), default=0.0), 1)
