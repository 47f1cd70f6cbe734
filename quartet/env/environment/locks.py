"""Locks: a text environment of graded difficulty, fast enough to compare training methods in seconds.

A family is a lock. The lock's code maps each of its signs to one correct button, and is the same for all seeds. Pages
do not show the code; the policy learns it by trial. A task is a row of the lock's signs. Seeds from
`FIRST_HELD_OUT_SEED` on have rows of the same signs that do not occur with smaller seeds. The page shows one sign at a
time. `click [n]` presses button n; after a right press the page shows the next sign. After a wrong press the lock
either `jams`, so that no further press has any effect, or `resets` to its first sign. The episode continues in both
cases, so the turn limit sets the cost of a failure. Opening the lock gives reward 1 and ends the episode.

With K signs per task and B buttons, a random policy succeeds with probability B^-K per try.

The suites `locks-late` and `locks-first` have one decisive press per task, the last or the first one. All other signs
have a single button, so that a policy presses it without uncertainty. A wrong press `spoils` these locks: the page goes
on to the next sign, and the episode ends after the last one without reward. All episodes therefore have the same number
of steps, and a random policy succeeds with probability 1/B.
"""

import random
from functools import cache
from itertools import accumulate, permutations
from typing import Literal

import msgspec
from msgspec import Struct

from quartet import config
from quartet.actions.grammar import ActionError, clicked, parse_action
from quartet.config.section import Section
from quartet.env.base import Env, Environment, Expert
from quartet.errors import ConfigError, EnvError, nearest
from quartet.types import Observation, StepResult, Task

Difficulty = Literal["easy", "medium", "hard"]
ROOMS = ("attic", "cabin", "cellar", "garage", "hall", "kitchen", "loft", "shed")
"""Words in the goal, without influence on the task; the seed selects one."""
JAMMED = "jammed"
FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
TRAINING_SHARE = 2 / 3
"""Share of a family's rows for training; the others are held out."""
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


class Lock(Struct, frozen=True, kw_only=True):
    """Parameters of one family."""

    difficulty: Difficulty
    steps: int
    """Number of signs in a task, which is the number of right presses that open the lock."""
    buttons: int
    """Number of buttons at a decisive sign; other signs have one button."""
    signs: int
    """Number of signs of the family. It exceeds `steps`, since no task repeats a sign and some rows are held out. It is
    at most twice `steps`, so that two rows contain all signs; with one decisive press it is `steps` + 1."""
    wrong: Literal["jams", "resets", "spoils"]
    decisive: Literal["all", "first", "last"] = "all"
    """Presses that can be wrong."""


def _with_one_decision(decisive: Literal["first", "last"], *names: str) -> dict[str, Lock]:
    return {
        name: Lock(difficulty="medium", steps=5, buttons=buttons, signs=6, wrong="spoils", decisive=decisive)
        for buttons, name in enumerate(names, 4)
    }


SUITES: dict[str, dict[str, Lock]] = {
    "locks": {
        "latch": Lock(difficulty="easy", steps=2, buttons=2, signs=3, wrong="resets"),
        "hook": Lock(difficulty="easy", steps=2, buttons=2, signs=3, wrong="jams"),
        "knob": Lock(difficulty="easy", steps=2, buttons=3, signs=3, wrong="resets"),
        "bolt": Lock(difficulty="medium", steps=2, buttons=5, signs=3, wrong="jams"),
        "chain": Lock(difficulty="medium", steps=3, buttons=3, signs=4, wrong="jams"),
        "drum": Lock(difficulty="medium", steps=3, buttons=4, signs=4, wrong="resets"),
        "gate": Lock(difficulty="hard", steps=4, buttons=6, signs=5, wrong="jams"),
        "safe": Lock(difficulty="hard", steps=5, buttons=5, signs=6, wrong="jams"),
        "vault": Lock(difficulty="hard", steps=5, buttons=6, signs=6, wrong="resets"),
    },
    "locks-2": {
        "clasp": Lock(difficulty="easy", steps=2, buttons=3, signs=3, wrong="jams"),
        "bell": Lock(difficulty="easy", steps=2, buttons=2, signs=3, wrong="jams"),
        "crank": Lock(difficulty="easy", steps=2, buttons=2, signs=3, wrong="resets"),
        "wheel": Lock(difficulty="medium", steps=2, buttons=4, signs=4, wrong="jams"),
        "ladder": Lock(difficulty="medium", steps=4, buttons=2, signs=5, wrong="jams"),
        "dial": Lock(difficulty="medium", steps=3, buttons=5, signs=4, wrong="resets"),
        "hatch": Lock(difficulty="hard", steps=4, buttons=7, signs=5, wrong="jams"),
        "crypt": Lock(difficulty="hard", steps=5, buttons=4, signs=6, wrong="jams"),
        "tower": Lock(difficulty="hard", steps=6, buttons=5, signs=7, wrong="resets"),
    },
    "locks-late": _with_one_decision("last", "alley", "bridge", "canal", "tunnel"),
    "locks-first": _with_one_decision("first", "fork", "ferry", "lift", "stile"),
}
LOCKS = {family: lock for suite in SUITES.values() for family, lock in suite.items()}
_FIRST_SIGN = dict(zip(LOCKS, accumulate((lock.signs for lock in LOCKS.values()), initial=0), strict=False))


def families(suite: str = "locks") -> list[str]:
    """Return the families of a suite, easy ones first. Raise `ConfigError` for an unknown suite."""
    if suite not in SUITES:
        raise ConfigError(f"unknown suite {suite!r} of locks", nearest(suite, SUITES))
    return list(SUITES[suite])


class Locks(Environment):
    """Rows of signs, each with one right button, of graded difficulty; fast enough to compare methods in seconds."""

    class Settings(Section):
        suite: str = "locks"
        """Named suite of task families: `locks` or `locks-2`, graded by difficulty; `locks-late` or `locks-first`, with
        one decisive press."""

    settings: Settings
    deterministic = snapshots = True
    grammar = "`click LABEL [1]`"
    first_settings = {
        "env": {"suite": "locks", "screenshots": False},
        "rollout": {"max_turns": 8, "max_tokens": 8},
    }

    def families(self) -> list[str]:
        return families(self.settings.suite)

    def session(self) -> Env:
        return LocksEnv()

    def expert(self, family_name: str, seed: int) -> Expert:
        """Return the expert: it reads the sign, so it also knows the right press after a wrong one."""
        right = code(family_name)
        return lambda page: f"click [{right.get(page.text.removeprefix('heading '), 1)}]"


@cache
def signs(family: str) -> list[str]:
    """Return the family's signs; no two families have a sign in common."""
    return [_word(_FIRST_SIGN[family] + index) for index in range(LOCKS[family].signs)]


@cache
def buttons(family: str) -> dict[str, int]:
    """Return sign -> number of its buttons."""
    lock, words = LOCKS[family], signs(family)
    certain = 0 if lock.decisive == "all" else lock.steps - 1
    return dict.fromkeys(words[:certain], 1) | dict.fromkeys(words[certain:], lock.buttons)


@cache
def code(family: str) -> dict[str, int]:
    """Return sign -> number of the right button, from 1."""
    draw = random.Random(f"locks/{family}")
    return {sign: draw.randint(1, count) for sign, count in buttons(family).items()}


def row(task: Task) -> list[str]:
    """Return the signs of a task, in order."""
    training, held_out = rows(task.family)
    if task.seed < FIRST_HELD_OUT_SEED:
        return list(training[task.seed % len(training)])
    return list(random.Random(task.key).choice(held_out))


@cache
def rows(family: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return all rows of a family: the rows of training seeds, in seed order, and the held-out rows.

    The first two training rows together contain all signs.
    """
    lock, words = LOCKS[family], signs(family)
    if lock.decisive == "all":
        possible = set(permutations(words, lock.steps))
        first = [tuple(words[: lock.steps]), tuple(reversed(words))[: lock.steps]]
    else:
        certain, chosen = words[: lock.steps - 1], words[lock.steps - 1 :]
        place = 0 if lock.decisive == "first" else len(certain)
        first = [(*certain[:place], sign, *certain[place:]) for sign in chosen]
        possible = {(*r[:place], sign, *r[place:]) for sign in chosen for r in permutations(certain)}
    others = sorted(possible - set(first))
    random.Random(f"rows/{family}").shuffle(others)
    ordered = [*first, *others]
    split = round(TRAINING_SHARE * len(ordered))
    return ordered[:split], ordered[split:]


def solution(task: Task) -> list[str]:
    """Return the actions that open the lock without a wrong press."""
    right = code(task.family)
    return [f"click [{right[sign]}]" for sign in row(task)]


def observe(task: Task, sign: str, error: str = "") -> Observation:
    """Return the page that shows `sign`."""
    room = random.Random(f"room/{task.key}").choice(ROOMS)
    return Observation(goal=f"Open {room}.", text=f"heading {sign}", error=error)


class LocksEnv:
    """One session."""

    def __init__(self) -> None:
        self._task: Task | None = None

    async def reset(self, task: Task) -> Observation:
        """Start an episode. Raise `ConfigError` for an unknown family."""
        if task.family not in LOCKS:
            raise ConfigError(f"unknown lock {task.family!r}", nearest(task.family, LOCKS))
        self._task, self._lock, self._code, self._row = task, LOCKS[task.family], code(task.family), row(task)
        self._buttons = buttons(task.family)
        self._opened, self._jammed, self._spoiled = 0, False, False
        return self._observe(task)

    async def step(self, action: str) -> StepResult:
        """Press the button that `click [n]` names; any other response presses no button and gets an error."""
        if self._task is None:
            raise EnvError("a lock was stepped before its first reset", "call reset(task) first")
        try:
            number = clicked(parse_action(action))
        except ActionError as error:
            return self._result(self._task, str(error))
        if number is None:
            return self._result(self._task, "only click works here")
        if not 1 <= number <= self._buttons[self._row[self._opened]]:
            return self._result(self._task, f"no element [{number}]")
        self._press(number)
        return self._result(self._task)

    async def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._opened, self._jammed, self._spoiled))

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        await self.reset(task)
        state = msgspec.msgpack.decode(snapshot, type=tuple[int, bool, bool])
        self._opened, self._jammed, self._spoiled = state
        return self._observe(task)

    async def close(self) -> None:
        self._task = None

    def _press(self, number: int) -> None:
        if self._jammed:
            return
        if number == self._code[self._row[self._opened]]:
            self._opened += 1
        elif self._lock.wrong == "spoils":
            self._opened, self._spoiled = self._opened + 1, True
        elif self._lock.wrong == "jams":
            self._jammed = True
        else:
            self._opened = 0

    def _result(self, task: Task, error: str = "") -> StepResult:
        ended = self._opened == self._lock.steps
        success = ended and not self._spoiled
        return StepResult(
            observation=self._observe(task, error),
            reward=float(success),
            terminated=ended,
            info={"success": True} if success else {},
        )

    def _observe(self, task: Task, error: str = "") -> Observation:
        """Return the current page; an open lock shows its last sign."""
        last = len(self._row) - 1
        return observe(task, JAMMED if self._jammed else self._row[min(self._opened, last)], error)


def _word(index: int) -> str:
    """Return a made-up word, different for every index below 4,900."""
    count = len(_SYLLABLES)
    return _SYLLABLES[index % count] + _SYLLABLES[(7 * index + index // count) % count]
