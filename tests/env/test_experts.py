"""The scripted experts: pure functions of what the policy reads, and good enough to solve every family."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet import config
from quartet.actions.grammar import parse_action
from quartet.actions.written import format_action
from quartet.env import make_environment
from quartet.env.base import Env
from quartet.env.check.experts import FamilyCheck, play_experts
from quartet.env.miniwob.env import MiniWobPool
from quartet.env.miniwob.experts import EXPERTS, PLANS, expert_action, make_expert
from quartet.env.miniwob.experts.page import Element, Page
from quartet.errors import ConfigError, EnvError, ExpertError
from quartet.types import Observation, Task
from recipes.miniwob.attempt import attempt_all, in_browser
from recipes.miniwob.demonstrate import GROUPS, make_demonstrations, make_tasks, write_texts

WORD = st.text("abcXYZ0189#", min_size=1, max_size=8)
LABEL = st.lists(WORD, max_size=3).map(" ".join)
STATES = st.lists(st.sampled_from(["checked", "selected", "focused"]), max_size=2, unique=True).map(tuple)
ELEMENT = st.builds(
    Element,
    kind=st.sampled_from(["button", "input", "text"]),
    label=LABEL,
    ref=st.integers(1, 199),
    states=STATES,
    value=WORD | st.just(""),
)


def act(family: str, goal: str, *lines: str) -> str:
    return expert_action(family, Observation(goal=goal, text="\n".join(lines)))


@settings(deadline=None)
@given(st.lists(ELEMENT, max_size=6))
def test_page_reads_back_every_element_as_printed(elements):
    lines = [" ".join([e.kind, e.target, *([f'= "{e.value}"'] if e.value else []), *e.states]) for e in elements]
    assert Page.parse("\n".join(lines)).elements == elements


def test_a_line_that_is_no_element_is_named():
    with pytest.raises(ExpertError, match="Loading please wait"):
        Page.parse("button ok [1]\nLoading please wait")


@settings(deadline=None)
@given(names=st.lists(WORD, min_size=1, max_size=6, unique=True), data=st.data())
def test_checkboxes_are_clicked_in_goal_order_and_only_when_unchecked(names, data):
    wanted = data.draw(st.permutations(names)) if len(names) > 1 else names
    checked = data.draw(st.sets(st.sampled_from(names)))
    goal = f"Select {', '.join(wanted)} and click Submit."
    lines = [f"checkbox {n} [{i}]{' checked' if n in checked else ''}" for i, n in enumerate(names, 1)]
    todo = [name for name in wanted if name not in checked]
    expected = f"click {todo[0]} [{names.index(todo[0]) + 1}]" if todo else "click Submit [99]"
    assert act("click-checkboxes", goal, *lines, "button Submit [99]") == expected


def test_a_form_is_filled_in_goal_order_whatever_the_page_order():
    goal = "Search for drama movies directed by Cole from year 1999."
    empty = ["input Year [2]", "input Director Name [3]", "input Movie Genre [4]", "button Go! [5]"]
    assert act("multi-layouts", goal, *empty) == 'type Movie Genre [4] "drama"'
    filled = ["input Year [2]", 'input Director Name [3] = "Cole"', 'input Movie Genre [4] = "drama"']
    assert act("multi-layouts", goal, *filled, "button Go! [5]") == 'type Year [2] "1999"'


def test_a_wrong_value_is_typed_again():
    goal = 'Enter "Ada" into the text field and press Submit.'
    page = ['input 1st [1] = "Bo"', "button Submit [2]"]
    assert act("enter-text", goal, *page) == 'type 1st [1] "Ada"'


def test_an_expert_says_what_the_page_lacks():
    with pytest.raises(ExpertError, match=r"0 elements of kind 'button' with label 'next'.* button cancel"):
        act("click-button", 'Click on the "next" button.', "button cancel [1]")


@pytest.mark.parametrize("lines", ["", "text Ada @ada [1]\nimage reply [2]"], ids=["no post", "no button"])
def test_a_plan_that_misses_an_element_names_those_of_the_page(lines: str) -> None:
    expert = make_expert("social-media")
    assert expert is not None
    goal = 'For the user @ada, click on the "Like" button.'
    with pytest.raises(ExpertError, match=r"does not know this page .*; its elements: (no elements|text Ada @ada)"):
        expert(Observation(goal=goal, text=lines))


def test_unknown_family_suggests_the_nearest():
    with pytest.raises(ConfigError, match="click-link"):
        act("click-lnk", "", "")


def test_every_family_of_the_suite_has_an_expert_without_memory():
    assert set(EXPERTS) >= set(GROUPS["all"])
    assert len(GROUPS["demonstrated"]) == 16 and len(GROUPS["undemonstrated"]) == 8


@pytest.mark.parametrize("seeds", [range(999_999, 1_000_001), range(1_000_000, 1_000_020), range(0)])
def test_held_out_seeds_are_refused(seeds):
    with pytest.raises(ConfigError, match="held out"):
        make_tasks(["click-link"], seeds)


async def test_undemonstrated_families_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="click-link"):
        await make_demonstrations(["click-button", "click-link"], range(2), tmp_path / "demos.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.browser
@pytest.mark.parametrize(
    "num_seeds", [1, pytest.param(3, marks=pytest.mark.campaign), pytest.param(20, marks=pytest.mark.release)]
)
async def test_experts_solve_every_family(num_seeds):
    attempts = await attempt_all(make_tasks(GROUPS["all"], range(num_seeds)), sessions=4)
    failed = [(a.task.key, a.error, [turn.action for turn in a.turns]) for a in attempts if not a.success]
    assert not failed


@pytest.mark.browser
async def test_experts_of_all_pages_solve_a_task(play_all_pages):
    families = ["choose-date-medium", "click-menu", "copy-paste", "email-inbox-delete", "navigate-tree", "terminal"]
    assert [result for result in await play_all_pages(families, range(1)) if not result.passed] == []


@pytest.mark.browser
@pytest.mark.campaign
@pytest.mark.timeout(0)  # its limits are those of each request, so that a busy machine only slows it down
@pytest.mark.parametrize("family", [*EXPERTS, *PLANS])
async def test_each_expert_of_all_pages_solves_20_of_20_tasks(family, play_all_pages):
    assert [result for result in await play_all_pages([family], range(20)) if not result.passed] == []


@pytest_asyncio.fixture
async def play_all_pages() -> AsyncIterator[Callable[[Sequence[str], range], Awaitable[list[FamilyCheck]]]]:
    """Function that plays the experts of families of the suite `miniwob-all`."""
    given = {"sessions": 4, "screenshots": False, "step_timeout_seconds": 60}
    env = config.Env.model_validate({"name": "miniwob", "suite": "miniwob-all", **given})
    environment = make_environment(env)
    pool = environment.pool(env)
    yield lambda families, seeds: play_experts(
        environment, pool, [Task(env="miniwob", family=family, seed=seed) for family in families for seed in seeds]
    )
    await pool.close()


@pytest.mark.browser
async def test_what_one_page_copies_another_does_not_paste():
    """All pages of a browser share its clipboard; each session has one of its own, which an episode begins empty."""
    pool = MiniWobPool(config.Env(name="miniwob", sessions=2, screenshots=False))
    one, other = await pool.acquire(), await pool.acquire()
    try:
        for env, seed in ((one, 1), (other, 2)):
            await env.reset(Task(env="miniwob", family="copy-paste", seed=seed))
        for env in (one, other):
            for action in ("click [1]", "key Control+a Control+c", "click [2]"):
                await env.step(action)
        for env in (one, other):
            page = Page.parse((await env.step("key Control+v")).observation.text)
            assert page.find("input").value == page.find("textarea").value
            await env.reset(Task(env="miniwob", family="copy-paste", seed=3))
            await env.step("click [2]")
            assert Page.parse((await env.step("key Control+v")).observation.text).find("input").value == ""
    finally:
        await pool.close()


@pytest.mark.browser
async def test_a_lost_session_is_replaced_and_a_hopeless_task_ends_the_run():
    sessions: dict[str, list[Env]] = {}

    async def lose(env: Env, task: Task) -> str:
        tried = sessions.setdefault(task.key, [])
        tried.append(env)
        if len(tried) < 3 or task.family == "click-button":
            raise EnvError(f"lost the page of {task.key}")
        return (await env.reset(task)).goal

    (goal,) = await in_browser(make_tasks(["click-link"], range(1)), sessions=1, play=lose)
    assert goal.startswith("Click on the link")
    with pytest.raises(EnvError, match="lost the page of miniwob/click-button/0"):
        await in_browser(make_tasks(["click-button"], range(1)), sessions=1, play=lose)
    assert [len(set(map(id, tried))) for tried in sessions.values()] == [3, 3]


@pytest.mark.browser
async def test_demonstrations_can_be_imitated_from_what_is_read(tmp_path):
    """Every target is printed in the prompt, every action is canonical, and nothing depends on concurrency."""
    families = ["click-button", "login-user", "email-inbox-reply", "search-engine"]
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    await make_demonstrations(families, range(2), alone, sessions=1)
    await make_demonstrations(families, range(2), together, sessions=4)
    assert alone.read_bytes() == together.read_bytes()
    lines = [json.loads(line) for line in alone.read_text().splitlines()]
    assert {line["family"] for line in lines} == set(families)
    for line in lines:
        prompt, action = (message["content"] for message in line["messages"])
        target = re.fullmatch(r'\w+ (.*?\[\d+\])(?: ".*")?', action)
        assert target and f" {target[1]}" in prompt
        assert format_action(parse_action(action)) == action


@pytest.mark.browser
async def test_texts_cover_undemonstrated_families_too(tmp_path):
    texts = await write_texts(["click-link", "enter-text"], range(2), tmp_path / "texts.jsonl", sessions=2)
    lines = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == texts
    assert [(line["family"], line["seed"]) for line in lines][:2] == [("click-link", 0), ("click-link", 1)]
    assert texts[0].startswith("Click on the link") and "\nlink " in texts[0]
