"""Adventures of TextWorld, which the package generates and solves."""

from pathlib import Path

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.textworld import TextWorld
from quartet.env.textworld.session import TextWorldSession
from quartet.errors import ConfigError
from quartet.types import Outcome, StepResult, Task

textworld = pytest.importorskip("textworld", reason="`make test-adapters` installs it")
pytestmark = pytest.mark.campaign  # a game takes seconds to make

GAMES = {"coins": "tw-coin_collector --level 3", "house": "custom --world-size 2 --nb-objects 4 --quest-length 2"}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory) -> Path:
    """Use an empty cache, which the tests of this file share."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def made(**settings: object) -> tuple[TextWorld, TextWorldSession]:
    environment = make_environment(config.Env(name="textworld", games=GAMES, **settings))
    session = environment.session()
    assert isinstance(environment, TextWorld) and isinstance(session, TextWorldSession)
    return environment, session


def task(family: str, seed: int = 0) -> Task:
    return Task(env="textworld", family=family, seed=seed)


def solve(environment: TextWorld, session: TextWorldSession, family: str, seed: int) -> list[StepResult]:
    seen, expert, results = session.reset(task(family, seed)), environment.expert(family, seed), []
    while not results or not results[-1].terminated:
        results.append(session.step(expert(seen)))
        seen = results[-1].observation
    return results


def test_the_package_s_own_solution_earns_the_whole_score_and_all_progress():
    environment, session = made(progress_reward=0.25)
    results = solve(environment, session, "house", 1)
    assert results[-1].info == {"success": True} and sum(result.rewards["score"] for result in results) == 1.0
    assert {result.rewards["progress"] for result in results} == {0.25}
    assert all(action.outcome is Outcome.DONE for result in results for action in result.actions)


def test_a_game_is_made_once_and_is_that_of_tw_make(cache):
    environment, session = made()
    first = session.reset(task("coins"))
    files = sorted((cache / "quartet" / "textworld").iterdir())
    again = made()[1].reset(task("coins"))
    assert first == again and sorted((cache / "quartet" / "textworld").iterdir()) == files
    assert "coin" in first.goal and first.text
    original = textworld.start(str(next(file for file in files if file.suffix == ".z8")))
    assert original.reset().feedback.strip() in (first.text, made()[1].reset(task("house", 1)).text)
    assert environment.max_turns("coins") == 3 * 3 + 5


def test_possible_commands_are_shown_and_others_are_errors():
    _, session = made(shown=["description", "inventory", "admissible_commands"])
    seen = session.reset(task("coins"))
    assert "Commands: " in seen.text and "inventory" in seen.text and "You are carrying nothing" in seen.text
    wrong, long = session.step("dance with the coin"), session.step("x" * 5_000)
    assert wrong.actions[0].outcome is Outcome.REFUSED and wrong.observation.error and wrong.reward == 0.0
    assert long.actions[0].outcome is Outcome.PARSE_ERROR and not long.terminated


def test_sessions_beside_each_other_do_not_mix():
    environment, one = made()
    other = made()[1]
    one.reset(task("house", 1))
    other.reset(task("coins"))
    assert [result.reward for result in solve(environment, other, "coins", 0)][-1] == 1.0
    expert = environment.expert("house", 1)
    assert one.step(expert(one.reset(task("house", 1)))).actions[0].outcome is Outcome.DONE


def test_unknown_families_and_arguments_are_errors_with_advice():
    with pytest.raises(ConfigError, match="coins"):
        made()[1].reset(task("coin"))
    environment = make_environment(config.Env(name="textworld", games={"x": "tw-coin_collector --levl 1"}))
    with pytest.raises(ConfigError, match=r"tw-make tw-coin_collector --levl 1"):
        environment.session().reset(task("x"))


@pytest.mark.timeout(2400)
async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="textworld", sessions=2, games={"coins": GAMES["coins"]}, step_timeout_seconds=900.0)
    results = await check_environment(env, range(1), lambda _: None)
    assert [result for result in results if not result.passed] == []
