"""Lag: the number of train steps between two policy versions of a run."""

from collections.abc import Iterable

from msgspec import Struct


class Ancestry(Struct, frozen=True, kw_only=True):
    """The policies of a run as a tree. Each policy is trained from the newest live one, and a roll-back ends a branch.

    Versions are numbered in commit order and not reused, so the rolled back versions define the tree. All other
    versions are live and form the committed line.
    """

    rolled_back: dict[int, int] = {}
    """Train step of every rolled back policy, by version."""

    def lag(self, version: int, start_version: int) -> int:
        """Return the number of train steps between the policy `version` and the live policy `start_version`.

        For a live version this is the distance along the committed line. A rolled back version diverged from that line
        at the newest live version with a lower number. Its lag is the distance back to that live version plus the
        distance from there to `start_version`, which is the number of train steps by which the two policies differ.
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
