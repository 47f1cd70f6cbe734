"""Instructions that are made from a page's elements: the same for all rollouts of a task, judged by the page's text."""

import pytest
from msgspec.structs import replace

from quartet import config
from quartet.env import make_pool
from quartet.env.miniwob.experts.page import Page
from quartet.env.miniwob.instructions import Instruction
from quartet.errors import EnvError
from quartet.types import GENERATED, Observation, StepResult, Task

FORM = """input Username [1]
input Password [2]
checkbox Remember me [3]
checkbox [4] checked
radio red [5]
radio blue [6]
input Known [7] = "x"
button Login [8]"""


def task(count: int, seed: int = 0, family: str = "login-user") -> Task:
    return Task(env="miniwob", family=family, seed=seed, params={GENERATED: count})


def seen(text: str) -> Observation:
    return Observation(goal="the page's own", text=text)


def test_the_sub_goals_are_drawn_from_what_is_empty_and_the_same_for_the_same_task():
    drawn = [Instruction.drawn(task(2, seed), seen(FORM)) for seed in range(60)]
    assert drawn == [Instruction.drawn(task(2, seed), seen(FORM)) for seed in range(60)]
    assert {len(one.subgoals) for one in drawn} == {2}
    labels = {subgoal.element.label for one in drawn for subgoal in one.subgoals}
    assert labels == {"Username", "Password", "Remember me", "red", "blue"}
    assert all({"red", "blue"} - {subgoal.element.label for subgoal in one.subgoals} for one in drawn)
    assert len({one.text for one in drawn}) > 40
    assert len(Instruction.drawn(task(9), seen(FORM)).subgoals) == 4


def test_only_a_page_that_shows_all_of_it_is_rewarded():
    drawn = next(
        one
        for one in (Instruction.drawn(task(2, seed), seen(FORM)) for seed in range(60))
        if [subgoal.element.label for subgoal in one.subgoals] == ["Username", "Remember me"]
    )
    text = drawn.subgoals[0].text
    assert drawn.text == f'Enter "{text}" into Username, then select Remember me.'
    entered = FORM.replace("Username [1]", f'Username [1] = "{text}"')
    both = entered.replace("Remember me [3]", "Remember me [3] checked focused")
    elsewhere = FORM.replace("Password [2]", f'Password [2] = "{text}"').replace("me [3]", "me [3] checked")
    page = StepResult(observation=seen(""), reward=1.0, terminated=True, info={"success": True})
    for shown, ended, reward in [
        (FORM, False, 0.0),
        (entered, False, 0.0),
        (elsewhere, False, 0.0),
        (both, True, 1.0),
        ("", False, 0.0),
        ("no line of an element", False, 0.0),
    ]:
        result = drawn.judged(replace(page, observation=seen(shown), terminated=False))
        assert (result.terminated, result.reward, result.info["success"]) == (ended, reward, bool(reward))
        assert result.observation.goal == drawn.text
    over = drawn.judged(replace(page, observation=seen(FORM)))
    assert (over.terminated, over.reward) == (True, 0.0), "the page's own reward does not count"


def test_a_page_without_fields_has_no_instruction():
    with pytest.raises(EnvError, match="no field to fill"):
        Instruction.drawn(task(1), seen("button Login [1]"))


@pytest.mark.browser
async def test_a_generated_instruction_is_followed_in_the_browser():
    pool = make_pool(config.Env(name="miniwob", suite="miniwob-24", screenshots=False, sessions=1))
    session = await pool.acquire()
    first = await session.reset(task(2, seed=4))
    assert first == await session.reset(task(2, seed=4)) and first.goal.startswith("Enter ")
    texts = first.goal.split('"')[1::2]
    fields = [element for element in Page.parse(first.text).elements if element.kind == "input"]
    result = await session.step(f'type {fields[0].target} "{texts[0]}"')
    assert (result.terminated, result.reward, result.observation.goal) == (False, 0.0, first.goal)
    result = await session.step(f'type {fields[1].target} "{texts[1]}"')
    assert (result.terminated, result.reward, result.info["success"]) == (True, 1.0, True)
    first = await session.reset(task(2, seed=4))
    result = await session.step(
        next(line for line in first.text.splitlines() if "button" in line).replace("button", "click")
    )
    assert (result.terminated, result.reward) == (True, 0.0), "the page ended, without the sub-goals"
    whole = await session.reset(replace(task(2), params={}))
    assert whole.goal.startswith("Enter the username")
    await pool.release(session, healthy=True)
    await pool.close()
