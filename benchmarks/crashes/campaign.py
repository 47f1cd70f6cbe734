"""Many kills of one run: at named crash points and at random moments, of one module or of all processes at once."""

import random
import signal
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from functools import partial

from benchmarks.crashes.crash_run import POLL_SECONDS, CrashRun, StuckError
from benchmarks.crashes.processes import has_ended
from benchmarks.crashes.recipe import FREEZE_SECONDS, LEASE_SECONDS, LEDGER_TIMEOUT_SECONDS

ROUND_SECONDS = 12.0
"""Time after which a crash point that no process has reached is disarmed for now; it is armed again later."""
MAX_TRIES = 12
RANDOM_MOMENT_SECONDS = 1.0
EVERYBODY = ("supervisor", "everybody")
ENGINES, SERVER = "engine", "server"
LONGEST_FREEZE = 1.5
"""Longest freeze of the database server at a random moment, as a multiple of `runtime.ledger_timeout_seconds`."""

BEGINNING = ("config", "create", "policies.register_initial")
ENDING = ("request_stop", "groups.cancel_unfinished")
"""Writes of the supervisor while no modules run."""
LARGE = ("blob",)
"""Write of a file for a blob that is too large for a row."""
LATE = ("batches.release", "batches.expire")
"""Writes about the batch of a trainer that was stopped."""
STARTS = ("batches.roll_back.before", "restored.before")
"""Crash points at the start of a trainer, which reaches one of the two before it releases the batch of its
predecessor."""
AT_WORK = {
    "worker": ("rollouts.claim", "rollouts.renew", "appending", "trajectories.append", "appended", "rollouts.release"),
    "manager": (
        *(
            "groups.admit_if",
            "groups.end_round",
            "groups.close",
            "groups.make_trainable",
            "groups.drop",
            "pool.store",
            "rollouts.expire",
        ),
        *("policies.mark_deleted", "evaluations.admit", "policies.mark_best", "evaluations.finish"),
    ),
    "trainer": (
        *("restored", "batches.roll_back", "batches.lease", "policy", "canary", "state_copy", "checkpoint"),
        *("committing", "batches.commit", "committed"),
    ),
    "engine": ("weights",),
    "everybody": ("modules.report", "event", "set_value", "rollouts.requeue_all"),
}
"""The other writes, by the module that usually does them; one crash point of each row is armed at a time."""
PROVOKED_BY = {
    "rollouts.expire": (ENGINES, "worker"),
    "rollouts.renew": (ENGINES,),
    "rollouts.release": (ENGINES, "supervisor"),
    "rollouts.requeue_all": ("supervisor",),
    "batches.roll_back": ("trainer",),
    "restored": ("trainer",),
}
"""Modules whose deaths, in this order, make a write likely. Without an engine rollouts stay in progress for seconds."""


def both(*writes: str) -> list[str]:
    """Return the crash points before and after each write."""
    return [f"{write}.{moment}" for write in writes for moment in ("before", "after")]


ALL_AT_WORK = frozenset(both(*(write for row in AT_WORK.values() for write in row)))


class Campaign:
    """Attacks on one run, with a record of the crash points that were hit."""

    def __init__(self, run: CrashRun, seed: int) -> None:
        self.run, self._random = run, random.Random(seed)
        # Victims at random moments: five times out of six a single module. The server freezes about as often as the
        # supervisor dies.
        self._victims = (*run.module_names, *run.module_names, *EVERYBODY, *[SERVER] * 2 * run.on_server)
        self.hits: list[str] = []

    def begin(self) -> None:
        """Start the run, and kill it at each crash point of its beginning."""
        for point in both(*BEGINNING):
            self.run.arm(point)
            self.run.start()
            self.run.until(lambda point=point: not self.run.armed(point), what=point)
            self._count(point)
        self.run.until_trained()

    def attack(self, points: Collection[str], *, kills: int = 0) -> None:
        """Kill processes until each of these crash points was hit and there were at least `kills` kills.

        Raises `StuckError` if no process ever reaches a point.
        """
        rows = [deque(point for point in self._shuffled(both(*row)) if point in points) for row in AT_WORK.values()]
        tries: Counter[str] = Counter()
        while any(rows) or self.run.kills < kills:
            self.run.until_trained()
            tries.update(row[0] for row in rows if row)
            self._round([row for row in rows if row])
            if never := [row[0] for row in rows if row and tries[row[0]] > MAX_TRIES]:
                raise StuckError(f"no process reaches {', '.join(never)}")

    def _round(self, rows: list[deque[str]]) -> None:
        """Arm the first crash point of each row, kill the modules whose deaths make it likely, and a random victim at a
        random moment."""
        for row in rows:
            self.run.arm(row[0])
        victims = [victim for row in rows for victim in PROVOKED_BY.get(row[0].rpartition(".")[0], ())]
        for victim in victims or [self._random.choice(self._victims)]:
            time.sleep(self._random.uniform(0, RANDOM_MOMENT_SECONDS))
            self._kill(victim)
        deadline = time.monotonic() + ROUND_SECONDS
        while any(self.run.armed(row[0]) for row in rows) and time.monotonic() < deadline:
            self.run.keep_alive()
            time.sleep(POLL_SECONDS)
        self._harvest(rows)

    def late_worker(self) -> None:
        """Stop a worker that is about to append a finished rollout, and continue it after its lease has expired."""
        self.run.until_trained()
        worker = self.run.stop_at("appending.after", "worker")
        time.sleep(2 * LEASE_SECONDS)
        self.run.go_on(worker)
        self.run.until_trained()

    def late_trainer(self, stopped_at: str, dies_at: str | None = None) -> None:
        """Stop a trainer that has computed a step. Continue it when its supervisor is dead and another trainer has
        trained its batch."""
        self.run.until_trained()
        trainer = self.run.stop_at(stopped_at, "trainer")
        self.run.kill_supervisor()
        self.run.until_trained(2)
        if dies_at:
            self.run.arm(dies_at)
        self.run.go_on(trainer)
        self.run.until(lambda: has_ended(trainer), what="the late trainer to end")
        if dies_at:
            self._harvest([deque([dies_at])])

    def stopped_trainer(self) -> None:
        """Stop a trainer until the data manager releases its batch and is killed at that write.

        The supervisor kills the silent trainer before its lease ends. The next trainers would release the batch
        themselves within a second, so each of them is stopped at its start.
        """
        self.run.until_trained()
        trainer = self.run.stop_at("policy.before", "trainer")

        def was_hit(point: str) -> bool:
            for start in STARTS:
                self.run.arm(start, signal.SIGSTOP)
            return not self.run.armed(point)

        for point in both("batches.expire"):
            self.run.arm(point)
            self.run.until(partial(was_hit, point), what=point)
            self._count(point)
        self.run.until(lambda: has_ended(trainer), what="the silent trainer to be killed")
        for point in STARTS:
            self.run.disarm(point)
        self.run.until_trained()

    def large_records(self) -> None:
        """Run a second worker whose records are too large for a row; kill it before and after it writes their file."""
        for point in both(*LARGE):
            self.run.arm(point)
            self.run.until(lambda: self.run.beside("benchmarks.crashes.large_record") == -signal.SIGKILL, what=point)
            self._count(point)
        self.run.until(lambda: self.run.beside("benchmarks.crashes.large_record") == 0, what="a large record")

    def lost_connections(self) -> None:
        """Let the database server end the connections of each module; then kill the server and start it again."""
        for module in self.run.module_names:
            self.run.until(lambda module=module: self.run.end_connections(module), what=f"{module} to connect")
            self.run.until_trained()
        self.run.crash_server()
        self.run.until_trained(2)

    def frozen_server(self) -> None:
        """Freeze the database server, for less and for more than `runtime.ledger_timeout_seconds`."""
        self.run.freeze_server(FREEZE_SECONDS)
        self.run.until_trained(2)
        self.run.outwait_patience()
        self.run.until_trained(2)

    def end(self) -> None:
        """Let the run end, and kill it at each crash point of its end."""
        for point in both(*ENDING):
            self.run.arm(point)
        self.run.finish()
        self._harvest([deque([point]) for point in both(*ENDING)])

    def _harvest(self, rows: Sequence[deque[str]]) -> None:
        """Count the armed crash points that were hit; move the others to the end of their rows."""
        for row in rows:
            if self.run.disarm(row[0]):
                row.rotate(-1)
            else:
                self._count(row.popleft())

    def _kill(self, victim: str) -> None:
        if victim == "supervisor":
            self.run.kill_supervisor()
        elif victim == "everybody":
            self.run.kill_everybody()
        elif victim == SERVER:
            self.run.freeze_server(self._random.uniform(0, LONGEST_FREEZE * LEDGER_TIMEOUT_SECONDS))
        else:
            self.run.kill(victim)

    def _count(self, point: str) -> None:
        self.run.kills += 1
        self.hits.append(point)

    def _shuffled(self, names: list[str]) -> list[str]:
        self._random.shuffle(names)
        return names
