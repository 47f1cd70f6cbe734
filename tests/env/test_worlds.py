"""Worlds: the expert's moves solve every task in as few moves as the page says, and what a wrong move costs."""

import random

import pytest

from quartet import config
from quartet.env.check.agents import curious
from quartet.env.check.run import check_environment
from quartet.env.environment.worlds import FAMILIES, KINDS, Worlds, make_world
from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Move, World
from quartet.env.worlds.session import INPUT, ONLY, WorldSession, elements, observe, written
from quartet.errors import ConfigError, EnvError
from quartet.part import NoSettings
from quartet.types import StepResult, Task

MOVES = {
    **{"web-easy": 3, "web-hard": 5, "search-easy": 2, "search-hard": 4, "craft-easy": 3, "craft-hard": 7},
    **{"house-easy": 3, "house-hard": 7, "lab-easy": 4, "lab-hard": 7},
}
"""Number of moves of the solution."""


def session() -> WorldSession:
    made = Worlds(NoSettings()).session()
    assert isinstance(made, WorldSession)
    return made


def task(family: str, seed: int = 0) -> Task:
    return Task(env="worlds", family=family, seed=seed)


def random_move(world: World, draw: random.Random) -> Move:
    line = draw.choice(elements(world))
    return Move(line.name, draw.choice(world.goal.strip(".").split()) if line.kind == INPUT else None)


async def play(family: str, *responses: str) -> list[StepResult]:
    one = session()
    await one.reset(task(family))
    return [await one.step(response) for response in responses]


async def test_every_check_of_environments_passes():
    results = await check_environment(config.Env(name="worlds", sessions=4), range(10), lambda _: None)
    assert [(result.check, result.findings) for result in results if result.findings] == []
    assert {result.measured for result in results if result.check == "experts"} == {
        f"feasible: {10 * len(FAMILIES)} of {10 * len(FAMILIES)} tasks pass"
    }


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_solution_has_the_length_of_its_family_and_only_its_last_move_is_rewarded(family: str):
    environment, one = Worlds(NoSettings()), session()
    for seed in range(20):
        expert, observation = environment.expert(family, seed), await one.reset(task(family, seed))
        results = []
        while not results or not results[-1].terminated:
            results.append(await one.step(expert(observation)))
            observation = results[-1].observation
            assert not observation.error
        assert [result.reward for result in results] == [0.0] * (MOVES[family] - 1) + [1.0]
        assert results[-1].info == {"success": True}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_moves_solve_a_task_from_wherever_random_moves_led(family: str):
    draw = random.Random(family)
    for seed in range(60):
        world = make_world(family, seed)
        solved = None
        for _ in range(draw.randrange(12)):
            try:
                solved = world.move(random_move(world, draw))
            except ActionFailedError:
                continue
            if solved is not None:
                break
        if solved is not None:
            continue  # a random move has ended the task
        for _ in range(2 * world.max_turns):
            solved = world.move(world.right_move())
            if solved is not None:
                break
        assert solved is True, f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_limit_suffices_for_easy_tasks_only_and_a_medium_one_for_hard_tasks(kind: str):
    """These are the stages of the experiment `scaling_inter_worlds`."""
    limit = KINDS[kind].max_turns
    assert MOVES[f"{kind}-easy"] <= round(0.4 * limit) < MOVES[f"{kind}-hard"] <= round(0.7 * limit)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_elements_are_unique_on_every_page(family: str):
    draw, world = random.Random(family), make_world(family, 3)
    for _ in range(30):
        names = [line.name for line in elements(world)]
        assert len(names) == len(set(names))
        try:
            if world.move(random_move(world, draw)) is not None:
                break
        except ActionFailedError:
            continue


async def test_random_clicks_rarely_solve_a_task():
    one, solved = session(), 0
    for family in FAMILIES:
        for seed in range(10):
            act, observation = curious(seed), await one.reset(task(family, seed))
            for _ in range(Worlds(NoSettings()).max_turns(family)):
                result = await one.step(str(act(observation)))
                observation, solved = result.observation, solved + result.reward
                if result.terminated:
                    break
    assert solved <= 20


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("hello", "not an action"),
        ("done", ONLY),
        ('type here "anna"', ONLY),
        ("click [99]", "no element [99]"),
        ("click name [1]", "type into [1]"),
        ('type send [2] "anna"', "click [2]"),
    ],
)
async def test_a_response_that_is_no_move_gets_an_error_and_changes_nothing(action: str, error: str):
    world = make_world("web-easy", 0)
    first = written(world, world.right_move())
    before, after = await play("web-easy", first, action)
    assert (after.observation.error, after.reward, after.terminated) == (error, 0.0, False)
    assert after.observation.text == before.observation.text


async def test_a_wrong_order_ends_the_episode_without_reward():
    world = make_world("web-easy", 0)
    first = written(world, world.right_move())
    sent = (await play("web-easy", first, "click send [2]"))[-1]
    assert (sent.reward, sent.terminated, sent.info) == (0.0, True, {"success": False})


async def test_a_typed_text_is_shown_in_its_field():
    world = make_world("web-easy", 0)
    first = written(world, world.right_move())
    typed = (await play("web-easy", first, 'type name [1] "nobody"'))[-1]
    assert 'input name [1] = "nobody"' in typed.observation.text.splitlines()


async def test_an_answer_in_the_lab_that_was_not_measured_is_no_success():
    rewards = [(await play("lab-easy", f"click {colour} [{number}]"))[0] for number, colour in enumerate("xyz", 10)]
    assert [(one.reward, one.terminated) for one in rewards] == [(0.0, True)] * 3


def test_crafting_needs_its_ingredients_and_uses_them_up():
    world = make_world("craft-easy", 0)
    target = world.goal.removeprefix("Craft ").strip(".")
    with pytest.raises(ActionFailedError, match=f"{target} needs"):
        world.move(Move(target))
    assert [world.move(world.right_move()) for _ in range(3)] == [None, None, True]
    assert f"text have {target}" in observe(world).text.splitlines()


async def test_unknown_families_and_steps_before_a_reset_are_explained():
    with pytest.raises(ConfigError, match="Did you mean 'web-easy'"):
        await session().reset(task("web-eazy"))
    with pytest.raises(EnvError, match="before its first reset"):
        await session().step("click [1]")
