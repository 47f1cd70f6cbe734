"""Members of a run as a worker sees them: engines, environment hosts, and the other workers.

They may join and leave while the run goes on. Workers do not communicate: each computes its share of the sessions from
the same rows of the ledger.
"""

from collections.abc import Sequence

from quartet.engine.connect import EngineClients
from quartet.env.client import RemoteEnvPool
from quartet.ledger import Ledger


class Members:
    """Follows the members of a run for the worker `module`."""

    def __init__(self, ledger: Ledger, module: str, pool: RemoteEnvPool, engines: Sequence[EngineClients]) -> None:
        self._ledger, self._module = ledger, module
        self._pool, self._engines = pool, engines

    @property
    def engines_have_room(self) -> bool:
        """False while all engines of a policy report that their memory is full."""
        return all(one.router.has_room for one in self._engines)

    async def follow(self) -> int:
        """Follow the engines, set the size of the pool to this worker's share of all sessions, and return it."""
        for one in self._engines:
            await one.follow_members()
        workers = {self._module, *(member.module for member in self._ledger.modules.members("worker"))}
        share = share_of(self._module, workers, self._ledger.modules.sessions())
        await self._pool.resize(share)
        return share


def share_of(module: str, modules: set[str], sessions: int) -> int:
    """Return the number of sessions of one of several modules. The shares differ by at most 1 and sum to `sessions`."""
    index, count = sorted(modules).index(module), len(modules)
    return sessions * (index + 1) // count - sessions * index // count
