"""UI-S1: matching and rewards in closed form, patches, and prompts with the policy's own history."""

import json
from pathlib import Path
from typing import Any

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.base import Environment
from quartet.env.offline.matching import compare
from quartet.env.offline.session import FIRST_HELD_OUT_SEED
from quartet.errors import ConfigError
from quartet.types import StepResult, Task

EXPERT = ["click name [1]", 'type name [1] "Ada"', "click ok [2]"]
TASK = Task(env="offline", family="login", seed=0)


def write(path: Path, actions: list[str], **other: Any) -> Path:
    """Write recordings of seeds 0 to 4, which differ in their goals."""
    lines = []
    for seed in range(5):
        for turn, action in enumerate(actions):
            page = f"Log in as {seed}.\nbutton ok [2]\ntext page {turn}"
            done = "".join(f"\ndid {earlier}" for earlier in actions[:turn])
            messages = [{"role": "user", "content": page + done}, {"role": "assistant", "content": action}]
            lines.append({"messages": messages, "family": "login", "seed": seed, "turn": turn} | other)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "recordings.jsonl", EXPERT)


def environment(file: Path, **settings: Any) -> Environment:
    return make_environment(config.Env.model_validate({"name": "offline", "data": str(file)} | settings))


async def play(environment: Environment, actions: list[str], task: Task = TASK) -> list[StepResult]:
    session, results = environment.session(), []
    await session.reset(task)
    for action in actions:
        results.append(await session.step(action))
        if results[-1].terminated:
            break
    return results


@pytest.mark.parametrize(
    ("response", "expert", "reward"),
    [
        ("click ok [2]", "click ok [2]", 1.0),
        ("click OK button [2]", "click ok [2]", 1.0),
        ("click ok [3]", "click ok [2]", 0.5),
        ("done", "click ok [2]", 0.1),
        ("double_click ok [2]", "click ok [2]", 0.1),
        ("hello", "click ok [2]", 0.0),
        ('type name [1] "ada lovelace"', 'type name [1] "Ada"', 1.0),
        ('type name [1] "Bo"', 'type name [1] "Ada"', 0.5),
        ('type name [1] ""', 'type name [1] "Ada"', 0.5),
        ('type name [2] "Ada"', 'type name [1] "Ada"', 0.5),
        ("click (3,4)", "click (3,4)", 1.0),
        ("click (3,5)", "click (3,4)", 0.5),
        ("key Enter", "key Enter", 1.0),
        ("key Tab", "key Enter", 0.5),
    ],
)
def test_the_reward_of_a_turn_is_that_of_the_paper(response: str, expert: str, reward: float):
    assert sum(compare(response, expert).rewards.values()) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("max_patches", "actions", "turns", "success"),
    [
        (0, EXPERT, 3, True),
        (0, ["click ok [2]", *EXPERT[1:]], 1, False),
        (1, ["click ok [2]", *EXPERT[1:]], 3, False),
        (1, ["click ok [2]", "done", EXPERT[2]], 2, False),
        (2, ["click ok [2]", "done", EXPERT[2]], 3, False),
        (None, ["done", "done", "done"], 3, False),
    ],
)
async def test_an_episode_ends_at_the_first_deviation_after_the_patches(
    file: Path, max_patches: int | None, actions: list[str], turns: int, success: bool
):
    results = await play(environment(file, max_patches=max_patches), actions)
    assert len(results) == turns and results[-1].terminated
    assert results[-1].info["success"] is success


async def test_a_patch_puts_the_experts_action_into_the_history_and_shows_its_state(file: Path):
    first, second, last = await play(environment(file), ["click ok [2]", *EXPERT[1:]])
    assert [taken.canonical for result in (first, second, last) for taken in result.actions] == EXPERT
    assert first.observation.text == "button ok [2]\ntext page 1"
    assert first.rewards == {"format": 0.1, "type": 0.4, "match": 0.0}


async def test_a_deviation_that_ends_the_episode_is_recorded_as_it_was(file: Path):
    (only,) = await play(environment(file, max_patches=0), ["click ok [2]"])
    assert [taken.canonical for taken in only.actions] == ["click ok [2]"]


async def test_the_last_recordings_are_held_out(file: Path):
    offline = environment(file, held_out_share=0.3)
    assert offline.num_train_tasks("login") == 3 and offline.max_turns("login") == 3
    goals = {(await offline.session().reset(Task(env="offline", family="login", seed=seed))).goal for seed in range(9)}
    assert goals == {"Log in as 0.", "Log in as 1.", "Log in as 2."}
    held_out = [Task(env="offline", family="login", seed=FIRST_HELD_OUT_SEED + seed) for seed in range(20)]
    assert {(await offline.session().reset(task)).goal for task in held_out} == {"Log in as 3.", "Log in as 4."}


def test_the_demonstrations_of_miniwob_are_recordings():
    offline = environment(Path("recipes/miniwob/demonstrations.jsonl"))
    assert "login-user" in offline.families()
    assert offline.max_turns("login-user") == 3


def test_files_that_are_no_recordings_are_refused(file: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="not turn 1"):
        environment(write(file, EXPERT, turn=0)).families()
    lines = write(file, EXPERT).read_text().replace("did click name [1]", "did click name [9]")
    file.write_text(lines)
    with pytest.raises(ConfigError, match="earlier actions"):
        environment(file).families()
    with pytest.raises(ConfigError, match="cannot be read"):
        environment(tmp_path / "none.jsonl").families()
    with pytest.raises(ConfigError, match="for training"):
        environment(write(file, EXPERT), held_out_share=1.0).families()
