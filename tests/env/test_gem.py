"""Environments of GEM, played beside the package itself."""

import random

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.gem import GemSession
from quartet.errors import ConfigError
from quartet.types import Task

gem = pytest.importorskip("gem", reason="`make test-adapters` installs it")
pytestmark = pytest.mark.campaign  # the import alone takes seconds

GUESS, MINES = "game:GuessTheNumber-v0-easy", "game:Minesweeper-v0-easy"


def made(name: str, **settings: object) -> GemSession:
    session = make_environment(config.Env(name="gem", ids=[name], **settings)).session()
    assert isinstance(session, GemSession)
    return session


def task(name: str, seed: int = 0) -> Task:
    return Task(env="gem", family=name, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_bisection_finds_the_number_that_the_package_hides(seed):
    original, ours, low, high = gem.make(GUESS), made(GUESS, history=False), 1, 10
    original.reset(seed=seed)
    assert "between 1 and 10" in ours.reset(task(GUESS, seed)).text
    while True:
        guess = (low + high) // 2
        text, reward, terminated, _, _ = original.step(f"\\boxed{{{guess}}}")
        result = ours.step(f"\\boxed{{{guess}}}")
        assert result.observation.text.startswith(text) and result.reward == reward
        if terminated:
            break
        low, high = (low, guess - 1) if f"lower than {guess}" in text else (guess + 1, high)
    assert result.terminated and result.info == {"success": reward == 1.0}


def test_history_shows_all_that_was_read():
    ours = made(GUESS)
    first = ours.reset(task(GUESS)).text
    second = ours.step("\\boxed{1}").observation.text
    assert "guess the number between" in first and "guess the number between" in second and "you guessed 1" in second


def test_sessions_side_by_side_draw_what_each_alone_draws():
    alone = [made(MINES).reset(task(MINES, seed)).text for seed in (3, 4)]
    two, before = [made(MINES), made(MINES)], random.getstate()
    beside = [session.reset(task(MINES, seed)).text for seed, session in zip((3, 4), two, strict=True)]
    opened = [session.step("\\boxed{reveal 0 0}").observation.text for session in two]
    again = made(MINES)
    again.reset(task(MINES, 3))
    assert alone == beside and again.step("\\boxed{reveal 0 0}").observation.text == opened[0]
    assert random.getstate() == before


def test_an_unknown_id_names_the_nearest():
    with pytest.raises(ConfigError, match="GuessTheNumber-v0-easy"):
        made("game:GuessTheNumber-v0-eas").reset(task("game:GuessTheNumber-v0-eas"))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("rg:countdown", "reasoning_gym"),
        ("math:GSM8K", "reward math"),
        ("code:CodeContest", "reward code"),
        ("qa:HotpotQA", "reward exact_match"),
        ("eval:AIME24", "reward math"),
    ],
)
def test_data_sets_are_refused_with_the_environment_to_use_instead(name, instead):
    with pytest.raises(ConfigError, match=rf"(?s){name}.*{instead}"):
        make_environment(config.Env(name="gem", ids=[name], turn_limit=1)).max_turns(name)
    with pytest.raises(ConfigError, match=instead):
        made(name).reset(task(name))


async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="gem", sessions=2, ids=[GUESS, MINES])
    results = await check_environment(env, range(2), lambda _: None)
    assert [result for result in results if not result.passed] == []
