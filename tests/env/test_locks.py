"""Locks: what opens one, what a wrong press costs, and that the grid is as hard as it says."""

import math
from itertools import pairwise

import pytest

from quartet import config
from quartet.env import make_pool, suite_families
from quartet.env.environment.locks import (
    FIRST_HELD_OUT_SEED,
    JAMMED,
    LOCKS,
    SUITES,
    LocksEnv,
    buttons,
    code,
    families,
    row,
    rows,
    signs,
    solution,
)
from quartet.errors import ConfigError, EnvError
from quartet.types import Task

POOL = config.Env(name="locks", sessions=2)


def task(family: str, seed: int = 0) -> Task:
    return Task(env="locks", family=family, seed=seed)


def wrong(a_task: Task, step: int) -> str:
    """A press that is not the right one at this step."""
    right = code(a_task.family)[row(a_task)[step]]
    return f"click [{right % LOCKS[a_task.family].buttons + 1}]"


@pytest.mark.parametrize("family", LOCKS)
async def test_the_solution_opens_every_lock_at_its_last_press(family):
    env = await make_pool(POOL).acquire()
    for seed in range(5):
        observation = await env.reset(task(family, seed))
        results = []
        for sign, action in zip(row(task(family, seed)), solution(task(family, seed)), strict=True):
            assert observation.text == f"heading {sign}"
            results.append(await env.step(action))
            observation = results[-1].observation
        assert [result.reward for result in results] == [0.0] * (LOCKS[family].steps - 1) + [1.0]
        assert [result.terminated for result in results] == [False] * (LOCKS[family].steps - 1) + [True]
        assert results[-1].info == {"success": True}


@pytest.mark.parametrize("family", ["gate", "ladder"])
async def test_a_jammed_lock_never_opens(family):
    env = await make_pool(POOL).acquire()
    a_task = task(family)
    await env.reset(a_task)
    results = [await env.step(wrong(a_task, 0))] + [await env.step(action) for action in solution(a_task)]
    assert {result.observation.text for result in results} == {f"heading {JAMMED}"}
    assert not any(result.terminated for result in results)
    assert (await env.reset(a_task)).text == f"heading {row(a_task)[0]}", "the next episode starts anew"


@pytest.mark.parametrize("family", ["drum", "tower"])
async def test_a_reset_lock_starts_again_and_can_still_be_opened(family):
    env = await make_pool(POOL).acquire()
    a_task = task(family)
    await env.reset(a_task)
    await env.step(solution(a_task)[0])
    assert (await env.step(wrong(a_task, 1))).observation.text == f"heading {row(a_task)[0]}"
    results = [await env.step(action) for action in solution(a_task)]
    assert results[-1].terminated


@pytest.mark.parametrize(
    ("action", "error"),
    [("hello", "not an action"), ("click [9]", "no element [9]"), ("done", "only click works here")],
)
async def test_action_without_a_button_is_an_error_and_changes_nothing(action, error):
    env = await make_pool(POOL).acquire()
    a_task = task("hook")
    before = await env.reset(a_task)
    result = await env.step(action)
    assert (result.observation.error, result.terminated, result.reward) == (error, False, 0.0)
    assert result.observation.text == before.text


def test_seeds_share_the_code_and_differ_in_their_signs():
    rows = {tuple(row(task("vault", seed))) for seed in range(40)}
    assert len(rows) > 30
    assert {sign for signs_of_task in rows for sign in signs_of_task} == set(signs("vault"))
    assert all(len(set(signs_of_task)) == LOCKS["vault"].steps for signs_of_task in rows)


@pytest.mark.parametrize("family", LOCKS)
def test_no_held_out_task_has_a_row_of_a_training_task(family):
    """Of as many seeds as a run draws, training and held out; all signs of held-out rows can be learned."""
    training = {tuple(row(task(family, seed))) for seed in range(200)}
    held_out = {tuple(row(task(family, FIRST_HELD_OUT_SEED + seed))) for seed in range(200)}
    assert len(held_out) >= 2
    assert not training & held_out
    first_two = {sign for seed in range(2) for sign in row(task(family, seed))}
    assert first_two == {sign for one in held_out | training for sign in one} == set(signs(family))
    lock, both = LOCKS[family], rows(family)
    certain = lock.steps - 1  # with one decisive press: any order of these signs, and two signs at its place
    expected = math.perm(lock.signs, lock.steps) if lock.decisive == "all" else 2 * math.factorial(certain)
    assert len(both[0]) + len(both[1]) == len({*both[0], *both[1]}) == expected


def test_every_sign_belongs_to_one_family_and_every_button_exists():
    words = [sign for family in LOCKS for sign in signs(family)]
    assert len(words) == len(set(words)) == sum(lock.signs for lock in LOCKS.values())
    for family, lock in LOCKS.items():
        assert set(code(family)) == set(signs(family))
        assert all(1 <= button <= lock.buttons for button in code(family).values())


@pytest.mark.parametrize(("suite", "place"), [("locks-late", 4), ("locks-first", 0)])
async def test_one_press_decides_and_the_others_have_one_button(suite, place):
    env = await make_pool(POOL).acquire()
    for family in families(suite):
        a_task, counts = task(family, 7), buttons(family)
        assert [counts[sign] for sign in row(a_task)] == [LOCKS[family].buttons if i == place else 1 for i in range(5)]
        actions = solution(a_task)
        actions[place] = wrong(a_task, place)
        await env.reset(a_task)
        assert (await env.step("click [8]")).observation.error == "no element [8]"
        results = [await env.step(action) for action in actions]
        assert [result.observation.text.split()[-1] for result in results[:-1]] == row(a_task)[1:]
        assert [result.terminated for result in results] == [False] * 4 + [True]
        assert [result.reward for result in results] == [0.0] * 5 and results[-1].info == {}


async def test_a_restored_lock_stays_spoiled():
    env, a_task = LocksEnv(), task("ferry")
    await env.reset(a_task)
    await env.step(wrong(a_task, 0))
    restored = LocksEnv()
    await restored.restore(a_task, await env.snapshot())
    results = [await restored.step(action) for action in solution(a_task)[1:]]
    assert results[-1].terminated and results[-1].reward == 0


@pytest.mark.parametrize("suite", ["locks", "locks-2"])
def test_the_grid_goes_from_trivial_to_out_of_reach(suite):
    chances = {
        difficulty: [lock.buttons**-lock.steps for lock in SUITES[suite].values() if lock.difficulty == difficulty]
        for difficulty in ("easy", "medium", "hard")
    }
    for easier, harder in pairwise(chances.values()):
        assert min(easier) > max(harder)
    assert max(chances["easy"]) >= 1 / 4
    assert all((1 - chance) ** 32 > 0.95 for chance in chances["hard"]), "no success in 32 tries"


async def test_unknown_names_suggest_the_nearest():
    assert suite_families(POOL) == families("locks") == families()
    assert not set(families("locks")) & set(families("locks-2"))
    with pytest.raises(ConfigError, match="Did you mean 'locks-2'"):
        families("lock-2")
    env = await make_pool(POOL).acquire()
    with pytest.raises(EnvError, match="before its first reset"):
        await env.step("click [1]")
    with pytest.raises(ConfigError, match="Did you mean 'vault'"):
        await env.reset(task("valt"))
