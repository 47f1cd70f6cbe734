"""Many kills of one run: at named crash points, at random moments, of one module or of everybody at once."""

import random
import signal
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence

from benchmarks.crashes.crash_run import POLL_SECONDS, CrashRun, StuckError
from benchmarks.crashes.processes import has_ended
from benchmarks.crashes.recipe import FREEZE_SECONDS, LEASE_SECONDS, LEDGER_PATIENCE_SECONDS

ROUND_SECONDS = 12.0
"""A point that nobody reached for so long makes room for others; its turn comes again."""
MAX_TRIES = 12
RANDOM_MOMENT_SECONDS = 1.0
EVERYBODY = ("supervisor", "everybody")
ENGINES, SERVER = "engine", "server"
LONGEST_FREEZE = 1.5
"""Of the patience of the run, for a freeze of the database server at a random moment."""

BEGINNING = ("config", "create", "register_initial_policy")
ENDING = ("request_stop", "cancel_unfinished")
"""Writes of a supervisor before and after there are modules."""
LARGE = ("blob",)
"""A file of its own, for what is too large for a row."""
LATE = ("release_batch", "expire_batches")
"""What is written of the batch of a trainer that was stopped."""
STARTS = ("roll_back.before", "restored.before")
"""A trainer comes by one of these before it releases what it held before."""
AT_WORK = {
    "worker": ("claim_rollouts", "renew", "appending", "append", "appended", "give_back"),
    "manager": (
        *("admit_if", "end_round", "close_group", "make_trainable", "drop_group", "store_successes", "expire_leases"),
        *("mark_deleted", "admit_evaluation", "mark_best", "finish_evaluation"),
    ),
    "trainer": (
        *("restored", "roll_back", "lease_batch", "policy", "canary", "checkpoint"),
        *("committing", "commit_batch", "committed"),
    ),
    "engine": ("weights",),
    "everybody": ("report", "event", "set_value", "end_leases"),
}
"""The other writes, by who mostly does them: one point of each row is armed at a time."""
PROVOKED_BY = {
    "expire_leases": (ENGINES, "worker"),
    "renew": (ENGINES,),
    "give_back": (ENGINES, "supervisor"),
    "end_leases": ("supervisor",),
    "roll_back": ("trainer",),
    "restored": ("trainer",),
}
"""Whose deaths, in this order, make a write likely. Without an engine rollouts are at work for seconds."""


def both(*writes: str) -> list[str]:
    """The points before and after each write."""
    return [f"{write}.{moment}" for write in writes for moment in ("before", "after")]


ALL_AT_WORK = frozenset(both(*(write for row in AT_WORK.values() for write in row)))


class Campaign:
    """Attacks one run; knows which points were hit."""

    def __init__(self, run: CrashRun, seed: int) -> None:
        self.run, self._random = run, random.Random(seed)
        # One of them dies at a random moment: five times of six it is a single module. A server freezes about as often
        # as the supervisor dies.
        self._victims = (*run.module_names, *run.module_names, *EVERYBODY, *[SERVER] * 2 * run.on_server)
        self.hits: list[str] = []

    def begin(self) -> None:
        """Start the run, killed at each point of its beginning."""
        for point in both(*BEGINNING):
            self.run.arm(point)
            self.run.start()
            self.run.until(lambda point=point: not self.run.armed(point), what=point)
            self._count(point)
        self.run.until_trained()

    def attack(self, points: Collection[str], *, kills: int = 0) -> None:
        """Rounds of kills until each of these points was hit and there were so many `kills`.

        Raises `StuckError` when nobody ever comes by a point.
        """
        rows = [deque(point for point in self._shuffled(both(*row)) if point in points) for row in AT_WORK.values()]
        tries: Counter[str] = Counter()
        while any(rows) or self.run.kills < kills:
            self.run.until_trained()
            tries.update(row[0] for row in rows if row)
            self._round([row for row in rows if row])
            if never := [row[0] for row in rows if row and tries[row[0]] > MAX_TRIES]:
                raise StuckError(f"nobody comes by {', '.join(never)}")

    def _round(self, rows: list[deque[str]]) -> None:
        """Arm the first point of each row, kill whose death makes it likely, and somebody at a random moment."""
        for row in rows:
            self.run.arm(row[0])
        victims = [victim for row in rows for victim in PROVOKED_BY.get(row[0].partition(".")[0], ())]
        for victim in victims or [self._random.choice(self._victims)]:
            time.sleep(self._random.uniform(0, RANDOM_MOMENT_SECONDS))
            self._kill(victim)
        deadline = time.monotonic() + ROUND_SECONDS
        while any(self.run.armed(row[0]) for row in rows) and time.monotonic() < deadline:
            self.run.keep_alive()
            time.sleep(POLL_SECONDS)
        self._harvest(rows)

    def late_worker(self) -> None:
        """A worker is stopped with a finished rollout in its hands, until its lease is over; then it goes on."""
        self.run.until_trained()
        worker = self.run.stop_at("appending.after", "worker")
        time.sleep(2 * LEASE_SECONDS)
        self.run.go_on(worker)
        self.run.until_trained()

    def late_trainer(self, stopped_at: str, dies_at: str | None = None) -> None:
        """A trainer is stopped with a computed step, outlives its supervisor, and goes on when another one has trained
        what it held."""
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
        """Stop a trainer until the manager releases its batch, and dies of that; then its silence ends the trainer.

        The trainer that is started next would release the batch itself, within a second: it is stopped at its start.
        """
        self.run.until_trained()
        trainer = self.run.stop_at("policy.before", "trainer")
        for point in STARTS:
            self.run.arm(point, signal.SIGSTOP)
        for point in both("expire_batches"):
            self.run.arm(point)
            self.run.until(lambda point=point: not self.run.armed(point), what=point)
            self._count(point)
        self.run.until(lambda: has_ended(trainer), what="the silent trainer to be killed")
        for point in STARTS:
            self.run.disarm(point)
        self.run.until_trained()

    def large_records(self) -> None:
        """A second worker whose records are too large for a row dies before and after it writes their file."""
        for point in both(*LARGE):
            self.run.arm(point)
            self.run.until(lambda: self.run.beside("benchmarks.crashes.large_record") == -signal.SIGKILL, what=point)
            self._count(point)
        self.run.until(lambda: self.run.beside("benchmarks.crashes.large_record") == 0, what="a large record")

    def lost_connections(self) -> None:
        """The database server ends the connections of each module, and then dies itself and comes back."""
        for module in self.run.module_names:
            self.run.until(lambda module=module: self.run.end_connections(module), what=f"{module} to connect")
            self.run.until_trained()
        self.run.crash_server()
        self.run.until_trained(2)

    def frozen_server(self) -> None:
        """The database server freezes: for less than the patience of the run, and for more."""
        self.run.freeze_server(FREEZE_SECONDS)
        self.run.until_trained(2)
        self.run.outwait_patience()
        self.run.until_trained(2)

    def end(self) -> None:
        """Let the run come to its end, killed at each point of that."""
        for point in both(*ENDING):
            self.run.arm(point)
        self.run.finish()
        self._harvest([deque([point]) for point in both(*ENDING)])

    def _harvest(self, rows: Sequence[deque[str]]) -> None:
        """Count the armed first points that were hit; the others go to the end of their rows."""
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
            self.run.freeze_server(self._random.uniform(0, LONGEST_FREEZE * LEDGER_PATIENCE_SECONDS))
        else:
            self.run.kill(victim)

    def _count(self, point: str) -> None:
        self.run.kills += 1
        self.hits.append(point)

    def _shuffled(self, names: list[str]) -> list[str]:
        self._random.shuffle(names)
        return names
