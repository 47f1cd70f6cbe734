"""`quartet env new`, `check` and `list`: the skeleton works at once, and each fault of an environment is found."""

import asyncio
import json
import random
import shlex
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from quartet import config
from quartet.env.base import Env, Environment, Expert
from quartet.env.check.run import check_environment
from quartet.env.check.subject import Subject
from quartet.env.checks.base import Grade
from quartet.env.environment.dataset import EXAMPLE
from quartet.env.skeleton import skeleton
from quartet.errors import ConfigError
from quartet.registry import registered
from quartet.types import Observation, StepResult, Task
from tests.command import quartet

PRESSES = ("press a", "press b")


class Good(Env):
    """Press the button of the seed; three turns at most."""

    async def reset(self, task: Task) -> Observation:
        self.right, self.turns = PRESSES[random.Random(task.key).randrange(2)], 0
        return Observation(goal=f"Please {self.right}.", text="buttons a b")

    async def step(self, action: str) -> StepResult:
        self.turns += 1
        error = "" if action in PRESSES else "press a or press b"
        seen = Observation(goal=f"Please {self.right}.", text="buttons a b", error=error)
        return StepResult(observation=seen, reward=float(action == self.right), terminated=not error)


class LeaksState(Good):
    episodes = 0

    async def reset(self, task: Task) -> Observation:
        type(self).episodes += 1
        return replace(await super().reset(task), goal=f"Episode {self.episodes}")


class Forgetful(Good):
    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, observation=replace(result.observation, text=str(random.random())))


class Brittle(Good):
    async def step(self, action: str) -> StepResult:
        PRESSES.index(action)
        return await super().step(action)


class Generous(Good):
    async def step(self, action: str) -> StepResult:
        return replace(await super().step(action), reward=1.0)


class Hangs(Good):
    async def step(self, action: str) -> StepResult:
        return await asyncio.get_running_loop().create_future()


class CutOff(Good):
    """End after two different responses; after four equal ones the episode is cut off, which the next reset shows."""

    cut = False

    async def reset(self, task: Task) -> Observation:
        seen, self.given = await super().reset(task), list[str]()
        late, self.cut = self.cut, False
        return replace(seen, goal=f"{seen.goal} late" if late else seen.goal)

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        self.given.append(action)
        ended = len({*self.given}) > 1
        self.cut = len(self.given) == 4 and not ended
        return replace(result, terminated=ended, truncated=self.cut)


class Unfinished(Good):
    """Leave a trace of every step that did not run to its end."""

    running = 0

    async def reset(self, task: Task) -> Observation:
        seen = await super().reset(task)
        return replace(seen, goal=f"{seen.goal} {self.running} steps run.") if self.running else seen

    async def step(self, action: str) -> StepResult:
        type(self).running += 1
        await asyncio.sleep(0.001)
        type(self).running -= 1
        return await super().step(action)


class Untyped(Good):
    async def step(self, action: str) -> Any:
        return (await super().step(action)).observation


class Old(Good):
    async def reset(self, task: Task, seed: int) -> Observation:  # type: ignore[override]
        return await super().reset(task)


class Empty(Good):
    async def reset(self, task: Task) -> Observation:
        await super().reset(task)
        return Observation(goal="", text="")


class Silent(Good):
    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, observation=replace(result.observation, error=""))


class Rich(Good):
    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, reward=5 * result.reward, terminated=True, info={"success": 1})


class Poor(Good):
    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, reward=result.reward / 2)


class Punishing(Good):
    """The reward of three parts sums to 1 but for rounding; a response that is no solution costs a little."""

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, reward=0.7 + 0.2 + 0.1 if result.reward else -0.1)


class Infinite(Good):
    async def step(self, action: str) -> StepResult:
        return replace(await super().step(action), reward=float("nan"))


def environment(session: type[Env], *, expert: str = "right") -> type[Environment]:
    class Tried(Environment):
        """An environment with one session class."""

        deterministic = True
        grammar = "`press a` or `press b`"

        def families(self) -> list[str]:
            return ["only"]

        def session(self) -> Env:
            return session()

        def expert(self, family_name: str, seed: int) -> Expert:
            return lambda seen: seen.goal[7:-1] if expert == "right" else "press c"

    return Tried


async def findings(session: type[Env], monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, str]:
    """Return the errors and warnings by the name of the check."""
    monkeypatch.setitem(registered, ("env", "tried"), environment(session, **options))
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="tried", sessions=2, step_timeout_seconds=0.2 if session is Hangs else 20.0)
    results = await check_environment(env, range(2), lambda _: None)
    return {
        result.check: " | ".join(one.what for one in result.findings)
        for result in results
        if result.check != "cost"  # its warnings depend on the load of the machine
        and any(one.grade is not Grade.NOTE for one in result.findings)
    }


async def test_a_sound_environment_has_no_findings(monkeypatch):
    assert await findings(Good, monkeypatch) == {}


@pytest.mark.parametrize(
    ("session", "check", "what"),
    [
        (LeaksState, "resets", "`goal` changed after an episode without a step"),
        (CutOff, "resets", "`goal` changed after an episode of one repeated response"),
        (Unfinished, "resets", "`goal` changed after a step that exceeded its deadline"),
        (Forgetful, "determinism", "turn 1"),
        (LeaksState, "families", "a reset changes it"),
        (Generous, "families", "only says `done` earns"),
        (Brittle, "malformed", "ValueError"),
        (Generous, "rewards", "only says `done` earns"),
        (Generous, "malformed", "malformed responses are rewarded, such as ''"),
        (Hangs, "experts", "no answer within"),
        (Untyped, "rewards", "of type Observation, not StepResult"),
        (Old, "declaration", "cannot be called as reset(task)"),
        (Empty, "resets", "shows nothing"),
        (Silent, "malformed", "change nothing that the policy reads"),
        (Poor, "experts", "expert 0.5"),
        (Generous, "experts", "idle 1"),
        (Infinite, "rewards", "not a finite number"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_each_fault_is_found_by_its_check(session, check, what, monkeypatch):
    assert what in (await findings(session, monkeypatch)).get(check, "nothing")


async def test_penalties_and_more_than_one_are_no_fault_of_experts(monkeypatch):
    for session in (Punishing, Rich):
        assert "experts" not in await findings(session, monkeypatch)


async def test_an_expert_that_fails_is_found(monkeypatch):
    assert "expert 0" in (await findings(Good, monkeypatch, expert="wrong"))["experts"]


async def test_the_chosen_checks_run(monkeypatch):
    monkeypatch.setitem(registered, ("env", "tried"), environment(Good))
    env = config.Env(name="tried", sessions=2)
    results = await check_environment(env, range(1), lambda _: None, ["experts", "declaration"])
    assert [result.check for result in results] == ["experts", "declaration"]
    with pytest.raises(ConfigError, match="expert"):
        await check_environment(env, range(1), lambda _: None, ["expert"])


@pytest.mark.slow
def test_the_skeleton_passes_its_check_and_its_test_and_trains(tmp_path):
    made = quartet("env", "new", "doors", "--json", folder=tmp_path)
    assert json.loads(made.stdout)["files"] == ["doors.py", "test_doors.py", "doors.toml"]
    lines = (tmp_path / "doors.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 30
    checked = quartet("env", "check", "doors", "--json", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    shown = json.loads(checked.stdout)
    assert shown["env"] == "doors:Doors"
    assert not [one for check in shown["checks"] if check["check"] != "cost" for one in check["findings"]]
    steps = ("--set", "train.max_train_steps=2", "--set", "evaluation.before_and_after=false")
    few = ("--set", "runtime.kind=synchronous", "--set", "admission.max_lag=0", "--run-dir", "run", "--json")
    trained = quartet("train", "doors.toml", *few, *steps, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    again = quartet("env", "new", "doors", folder=tmp_path)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_a_name_that_would_hide_a_module_is_refused(tmp_path):
    refused = quartet("env", "new", "random", folder=tmp_path)
    assert refused.returncode == 2 and "would hide" in refused.stderr
    assert "not the name of a Python module" in quartet("env", "new", "my-doors", folder=tmp_path).stderr
    assert "no keyword of Python" in quartet("env", "new", "class", folder=tmp_path).stderr


@pytest.mark.parametrize("name", ["session", "observation", "step_result", "none", "_1", "a_CLASS"])
def test_the_class_of_a_skeleton_hides_no_name_that_it_uses(name):
    files = skeleton(name)
    module: dict[str, Any] = {"__name__": name}
    exec(files[f"{name}.py"], module)
    part = files[f"{name}.toml"].split(f'name = "{name}:')[1].split('"')[0]
    session = module[part](None).session()
    seen = asyncio.run(session.reset(Task(env=name, family="houses", seed=1)))
    assert seen.goal and asyncio.run(session.step("click green [2]")).reward == 1.0


@pytest.mark.parametrize("name", ["doors", "none"])
async def test_the_skeleton_has_no_finding(name, monkeypatch, tmp_path):
    """A fresh environment gives a user nothing to mend."""
    files = skeleton(name)
    module: dict[str, Any] = {"__name__": name}
    exec(files[f"{name}.py"], module)
    made = module[files[f"{name}.toml"].split(f'name = "{name}:')[1].split('"')[0]]
    monkeypatch.setitem(registered, ("env", "tried"), made)
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    results = await check_environment(config.Env(name="tried", sessions=2), range(3), lambda _: None)
    assert [one for result in results if result.check != "cost" for one in result.findings] == []


class Hidden(Good):
    """All tasks begin alike; the seed decides which press is right."""

    async def reset(self, task: Task) -> Observation:
        self.right, self.turns = PRESSES[task.seed % 2], 0
        return self.look()

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, observation=self.look())

    def look(self) -> Observation:
        return Observation(goal="Press the right one.", text=f"turn {self.turns}: press or a b")


class Unseeded(Hidden):
    async def reset(self, task: Task) -> Observation:
        return await super().reset(replace(task, seed=0))


async def test_seeds_that_differ_later_are_no_fault(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.resets.curious", lambda _: lambda seen: "press a")
    assert "resets" not in await findings(Hidden, monkeypatch)
    assert "show the same first observation" in (await findings(Unseeded, monkeypatch))["resets"]


async def test_notes_on_an_environment_of_quartet_have_no_advice_to_change_its_class(monkeypatch):
    env = config.Env(name="dataset", sessions=2, data=str(EXAMPLE), prompt="{{ question }}", reward=["number"])
    (shipped,) = await check_environment(env, range(1), lambda _: None, ["experts"])
    assert [(one.grade, one.advice) for one in shipped.findings] == [(Grade.NOTE, "")]
    tried = environment(Good)
    monkeypatch.setattr(tried, "expert", lambda *_: None)
    monkeypatch.setitem(registered, ("env", "tried"), tried)
    (own,) = await check_environment(config.Env(name="tried", sessions=2), range(1), lambda _: None, ["experts"])
    assert "define `expert`" in own.findings[0].advice


class Held(Good):
    """Holds something from its beginning to its end."""

    held: ClassVar[list["Held"]] = []

    def __init__(self) -> None:
        self.held.append(self)

    async def close(self) -> None:
        self.held.remove(self)


async def test_every_session_that_a_check_makes_is_closed(monkeypatch):
    await findings(Held, monkeypatch)
    assert Held.held == []


def test_a_failed_check_is_shown_with_its_place_and_fails_the_command(tmp_path):
    quartet("env", "new", "broken", folder=tmp_path)
    file = tmp_path / "broken.py"
    file.write_text(file.read_text().replace("float(opened == DOORS[self.house])", "1.0"))
    checked = quartet("env", "check", "broken", folder=tmp_path)
    assert checked.returncode == 1
    assert "FAIL rewards" in checked.stdout and "an agent that only says `done` earns" in checked.stdout
    assert "--> broken.py:15, in Session.step" in checked.stdout
    assert "checks of 'broken:Broken' fail" in checked.stderr


@pytest.mark.parametrize(
    ("command", "name", "needed", "options"),
    [
        (
            "check",
            "dataset",
            "needs env.data",
            ["--set env.data=", "--set 'env.prompt=What is", "--set env.reward=number"],
        ),
        ("play", "gymnasium", "needs env.ids", ["--set 'env.ids=[\"minigrid:"]),
        ("serve", "openenv", "needs env.url", ["--set env.url=http"]),
    ],
)
def test_an_environment_without_its_required_settings_names_the_options_of_a_first_recipe(
    command, name, needed, options
):
    refused = quartet("env", command, name)
    assert refused.returncode == 2 and needed in refused.stderr
    assert all(option in refused.stderr for option in options)


def test_the_options_of_a_first_recipe_pass_the_check_of_the_data_set():
    given = shlex.split(quartet("env", "check", "dataset").stderr.rpartition("for instance ")[2])
    checked = quartet("env", "check", "dataset", *given, "--check", "families")
    assert checked.returncode == 0, checked.stderr


def test_the_list_names_environments_with_what_they_need():
    rows = {row["name"]: row for row in json.loads(quartet("env", "list", "--json").stdout)}
    assert rows["dataset"]["requires"] == ["data"]
    assert rows["gymnasium"]["requires"] == ["ids"]
    assert {"bandit", "locks", "miniwob"} <= rows.keys()


async def test_the_checks_have_the_limit_of_a_reset_that_the_settings_name():
    env = config.Env(name="bandit", step_timeout_seconds=0.1, reset_timeout_seconds=60.0)
    async with Subject(env, range(1)) as subject, subject.session() as session:
        task = Task(env="bandit", family="fixed", seed=0, params={"delay_seconds": 0.3})
        assert (await session.reset(task)).goal == "Pull an arm."
