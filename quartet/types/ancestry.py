"""How far apart two policy versions of a run are: the lag, defined here and nowhere else."""

from collections.abc import Iterable

from msgspec import Struct


class Ancestry(Struct, frozen=True, kw_only=True):
    """The policies of a run as a tree. Each is trained from the newest live one, and a roll-back ends a branch.

    Versions are numbered in the order of their commits and never reused, so the rolled back ones say everything: the
    others are the committed line.
    """

    rolled_back: dict[int, int] = {}
    """Train step by version, of every policy that was rolled back."""

    def lag(self, version: int, start_version: int) -> int:
        """Return how many train steps lie between the policy `version` and the live policy `start_version`.

        For a live version that is the distance along the committed line. A rolled back version diverged from that line
        at the newest live version below it: the lag is the way back to there plus the way from there to
        `start_version`, so what a lost branch sampled is as old as the train steps by which the two policies differ.
        """
        fork = version
        while fork in self.rolled_back:
            fork -= 1
        shared_steps = self._train_step(fork)
        lost_steps = self.rolled_back[version] - shared_steps if version in self.rolled_back else 0
        return self._train_step(start_version) - shared_steps + lost_steps

    def lags(self, versions: Iterable[int], start_version: int) -> list[int]:
        """Return the lag of each version."""
        return [self.lag(version, start_version) for version in versions]

    def _train_step(self, live_version: int) -> int:
        return live_version - sum(version < live_version for version in self.rolled_back)
