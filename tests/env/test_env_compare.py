"""`quartet env compare`: a port equals its reference, or its first difference is named with the actions to it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartet import config
from quartet.env.base import Env, Environment
from quartet.env.port.equality import equal
from quartet.env.port.speed import steps_per_second
from quartet.env.port.verify import Verification, Verified
from quartet.errors import ConfigError, EnvError, RewardError
from quartet.registry import registered
from quartet.types import Message, Observation, StepResult, Task
from tests.command import quartet

EXAMPLES = Path(__file__).parents[2] / "examples"
ROOM = 'reference.ids=["minigrid:MiniGrid-Empty-5x5-v0"]'


class Counter(Env):
    """Count up or down from the seed; three ups in a row earn the reward."""

    async def reset(self, task: Task) -> Observation:
        self.number, self.ups = task.seed, 0
        return self.look()

    async def step(self, action: str) -> StepResult:
        action = action.strip(".")
        known = action in ("up", "down")
        self.ups = self.ups + 1 if action == "up" else 0
        self.number += {"up": 1, "down": -1}.get(action, 0)
        return StepResult(
            observation=self.look("" if known else "write up or down"),
            reward=float(self.ups == 3),
            terminated=self.ups == 3,
            info={"success": True} if self.ups == 3 else {},
        )

    def look(self, error: str = "") -> Observation:
        return Observation(goal="Write up or down.", text=str(self.number), error=error)


class OtherStart(Counter):
    async def reset(self, task: Task) -> Observation:
        return replace(await super().reset(task), text="0")


class Lenient(Counter):
    async def step(self, action: str) -> StepResult:
        return await super().step(action.strip().lower() or "up")


class Generous(Counter):
    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, reward=2 * result.reward)


class Game(Counter):
    """The same for two players: the first loses when the reward would have come."""

    def outcome(self) -> list[float]:
        return [-1.0, 1.0]

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, reward=0.0, info={"rewards": self.outcome()} if result.terminated else {})


class OtherWinner(Game):
    def outcome(self) -> list[float]:
        return [1.0, -1.0]


class Single(Counter):
    """The same with rewards and texts that differ as those of a port in float32 do."""

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        seen = replace(result.observation, text=f"{self.number + 1e-7}")
        return replace(result, observation=seen, reward=result.reward * (1 + 1e-7))


class Undefined(Game):
    def outcome(self) -> list[float]:
        return [float("nan"), 1.0]


class Fails(Counter):
    async def step(self, action: str) -> StepResult:
        if self.ups == 1 and action == "down.":
            raise ZeroDivisionError("by chance")
        return await super().step(action)


class Unrewarded(Counter):
    async def step(self, action: str) -> StepResult:
        if self.ups == 1 and action == "down.":
            return replace(await super().step(action), reward=float("nan"))
        return await super().step(action)


class Hangs(Counter):
    async def step(self, action: str) -> StepResult:
        if self.ups == 1 and action == "down.":
            await asyncio.sleep(600)
        return await super().step(action)


class Closed(Counter):
    """Sessions that are counted when they are closed."""

    count = 0

    async def close(self) -> None:
        Closed.count += 1


class FailsOpen(Closed):
    async def step(self, action: str) -> StepResult:
        raise EnvError("by chance")


class HangsOpen(Closed):
    async def reset(self, task: Task) -> Observation:
        await asyncio.sleep(600)
        return self.look()


@dataclass
class Declared:
    """Class members of an environment under test."""

    session: Callable[[], Env] = Counter
    turns: int = 12
    families: tuple[str, ...] = ("only",)


def environment(declared: Declared) -> type[Environment]:
    class Tried(Environment):
        """An environment with one session class."""

        def families(self) -> list[str]:
            return [*declared.families]

        def session(self) -> Env:
            return declared.session()

        def max_turns(self, family_name: str) -> int:
            return declared.turns

    return Tried


async def compared(
    monkeypatch: pytest.MonkeyPatch,
    port: Declared,
    reference: Declared | None = None,
    tolerance: float = 0.0,
    limit_seconds: float = 60.0,
) -> Verified:
    sides = registered_sides(monkeypatch, port, reference or Declared(), limit_seconds)
    return await Verification(*sides, range(1, 4), 60, tolerance).run()


def registered_sides(
    monkeypatch: pytest.MonkeyPatch, port: Declared, reference: Declared, limit_seconds: float
) -> tuple[config.Env, config.Env]:
    monkeypatch.setitem(registered, ("env", "slow"), environment(reference))
    monkeypatch.setitem(registered, ("env", "fast"), environment(port))
    slow, fast = (config.Env(name=name, step_timeout_seconds=limit_seconds) for name in ("slow", "fast"))
    return slow, fast


async def test_equal_environments_have_no_difference(monkeypatch):
    verified = await compared(monkeypatch, Declared())
    assert (verified.difference, verified.level, verified.responses) == ("", "", [])
    assert (verified.resets, verified.rollouts) == (3, 60) and verified.rewarded > 0
    assert verified.turns > verified.rollouts


@pytest.mark.parametrize(
    ("port", "level", "difference"),
    [
        (Declared(turns=5), "members", "`max_turns('only')` is 12 in the reference and 5 in the port"),
        (Declared(OtherStart), "resets", "`text` differs, reference and port: '1' and '0'"),
        (Declared(Lenient), "interactions", "`text` differs, reference and port: '1' and '2'"),
        (Declared(Generous), "rollouts", "`reward` differs, reference and port: '1.0' and '2.0'"),
        (Declared(Fails), "rollouts", "the port fails, and the other does not: Fails.step raised ZeroDivisionError"),
        (Declared(Unrewarded), "rollouts", "the port fails, and the other does not: the reward of "),
    ],
)
async def test_the_first_difference_is_named_with_its_level(port, level, difference, monkeypatch):
    verified = await compared(monkeypatch, port)
    assert (verified.level, difference in verified.difference) == (level, True), verified.difference


async def test_the_rewards_of_all_players_are_compared_and_counted(monkeypatch):
    verified = await compared(monkeypatch, Declared(Game), Declared(Game))
    assert verified.difference == "" and verified.rewarded > 0
    verified = await compared(monkeypatch, Declared(OtherWinner), Declared(Game))
    assert "`info['rewards']` differs, reference and port: " in verified.difference


async def test_numbers_may_differ_by_the_tolerance_and_no_more(monkeypatch):
    class Double(Counter):
        async def step(self, action: str) -> StepResult:
            result = await super().step(action)
            return replace(result, observation=replace(result.observation, text=f"{float(self.number)}"))

    reference, port = Declared(Double), Declared(Single)
    assert (await compared(monkeypatch, port, reference)).level == "interactions", "exact by default"
    assert (await compared(monkeypatch, port, reference, tolerance=1e-8)).level == "interactions"
    assert (await compared(monkeypatch, port, reference, tolerance=1e-5)).difference == ""
    verified = await compared(monkeypatch, Declared(Generous), tolerance=1e-5)
    assert "`reward` differs, reference and port: '1.0' and '2.0'" in verified.difference


async def test_nan_equals_nan(monkeypatch):
    assert (await compared(monkeypatch, Declared(Undefined), Declared(Undefined))).difference == ""
    assert "info['rewards']" in (await compared(monkeypatch, Declared(Undefined), Declared(Game))).difference


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (True, 1.0, True),
        ({"a": 1.0}, {"a": 1.0 + 1e-7}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        ([1.0], [1.0, 2.0], False),
        ("x 1.0, y nan", "x 1.0000001, y nan", True),
        ("x 1.0", "y 1.0", False),
        ("1 2", "12", False),
        ("a1", "a2", False),
        (b"1", b"2", False),
        (None, 0.0, False),
        ([Message("user", "at 1.0")], [Message("user", "at 1.0000001")], True),
        ([Message("user", "at 1.0")], [Message("system", "at 1.0")], False),
    ],
)
def test_values_are_equal_by_their_form_and_their_numbers(one, other, same):
    assert equal(one, other, 1e-5) is equal(other, one, 1e-5) is same


async def test_the_responses_reproduce_the_difference(monkeypatch):
    verified = await compared(monkeypatch, Declared(Generous))
    slow, fast = Counter(), Generous()
    task = Task(env="slow", family="only", seed=int(verified.task.rsplit("/", 1)[-1]))
    assert await slow.reset(task) == await fast.reset(task)
    rewards = [((await slow.step(one)).reward, (await fast.step(one)).reward) for one in verified.responses]
    assert all(before == now for before, now in rewards[:-1]) and rewards[-1] == (1.0, 2.0)


async def test_a_family_that_the_reference_lacks_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="the reference has no task family 'more'"):
        await compared(monkeypatch, Declared(families=("only", "more")))


async def test_environments_that_both_fail_are_not_called_equal(monkeypatch):
    with pytest.raises(EnvError, match="by chance"):
        await compared(monkeypatch, Declared(Fails), Declared(Fails))


async def test_a_wrong_reward_and_a_failure_are_different_answers(monkeypatch):
    verified = await compared(monkeypatch, Declared(Fails), Declared(Unrewarded))
    assert "the reference fails: the reward of " in verified.difference
    assert "the port fails otherwise: Fails.step raised ZeroDivisionError" in verified.difference
    with pytest.raises(RewardError, match="nan"):
        await compared(monkeypatch, Declared(Unrewarded), Declared(Unrewarded))


async def test_a_step_that_never_returns_is_a_difference_with_its_task_and_response(monkeypatch):
    verified = await compared(monkeypatch, Declared(Hangs), limit_seconds=1.0)
    late = f"the other does not: the step 'down.' of {verified.task} in the port took longer than 1 s"
    assert late in verified.difference and verified.responses[-1] == "down."
    with pytest.raises(EnvError, match=r"the step 'down\.' of slow/only/\d+ in the reference took longer"):
        await compared(monkeypatch, Declared(Hangs), Declared(Hangs), limit_seconds=1.0)


@pytest.mark.parametrize(("kind", "reason"), [(FailsOpen, "by chance"), (HangsOpen, "the reset of fast/only/1 took")])
async def test_a_measurement_of_speed_that_fails_or_hangs_ends_and_closes_its_session(kind, reason, monkeypatch):
    monkeypatch.setattr(Closed, "count", 0)
    sides = registered_sides(monkeypatch, Declared(kind), Declared(), 0.5)
    with pytest.raises(EnvError, match=reason):
        await steps_per_second(*sides, [1])
    assert Closed.count == 1


async def test_a_replay_that_hangs_ends_the_measurement_of_speed(monkeypatch):
    sides = registered_sides(monkeypatch, Declared(turns=2), Declared(HangsOpen, turns=2), 0.3)
    with pytest.raises(EnvError, match=r"the episode of fast/only/1 took longer than 0\.9 s"):
        await steps_per_second(*sides, [1])


@pytest.mark.slow
def test_the_example_equals_minigrid_and_a_changed_copy_does_not(tmp_path):
    text = (EXAMPLES / "fast_port.py").read_text()
    (tmp_path / "fast_port.py").write_text(text)
    command = ("env", "compare", "gymnasium", "fast_port", "--set", ROOM, "--seeds", "1", "--rollouts", "10")
    equal = quartet(*command, "--json", folder=tmp_path)
    assert equal.returncode == 0, equal.stderr
    shown = json.loads(equal.stdout)
    assert shown["equal"] and shown["rewarded"] > 0 and shown["port_steps_per_second"] > 0
    (tmp_path / "fast_port.py").write_text(text.replace("1 - 0.9 *", "1 - 0.8 *"))
    changed = quartet(*command, folder=tmp_path)
    assert changed.returncode == 1
    assert "rollouts of" in changed.stderr and "`reward` differs" in changed.stderr
    assert "reproduce it with the responses" in changed.stderr


def test_a_setting_without_a_side_is_refused(tmp_path):
    refused = quartet("env", "compare", "bandit", "bandit", "--set", "sessions=2", folder=tmp_path)
    assert refused.returncode != 0 and "begin a setting with `reference.` or `port.`" in refused.stderr


def test_an_environment_with_another_loop_is_compared(tmp_path: Path) -> None:
    """`tools` refuses the loop that a recipe has by default."""
    same = quartet("env", "compare", "tools", "tools", "--seeds", "1", "--rollouts", "2", "--json", folder=tmp_path)
    assert json.loads(same.stdout)["equal"] is True, same.stderr
    refused = quartet("env", "compare", "tools", "tools", "--set", "port.sesions=2", folder=tmp_path)
    assert refused.returncode != 0 and "port.sesions" in refused.stderr and "sessions" in refused.stderr


@pytest.mark.parametrize("override", ["port=8080", "reference=x", "sessions=2"])
def test_a_setting_of_no_side_is_wrong_usage(override: str) -> None:
    done = quartet("env", "compare", "gymnasium", "bandit", "--set", override)
    assert done.returncode == 2 and f"--set {override} names no side" in done.stderr


@pytest.mark.parametrize(
    ("names", "needed", "option"),
    [
        (("gymnasium", "bandit"), "needs reference.ids", "--set 'reference.ids=[\"minigrid:"),
        (("bandit", "openenv"), "needs port.url", "--set port.url=http"),
    ],
)
def test_a_side_without_its_required_settings_names_the_options_of_a_first_recipe(
    names: tuple[str, str], needed: str, option: str
) -> None:
    refused = quartet("env", "compare", *names)
    assert refused.returncode == 2 and needed in refused.stderr and option in refused.stderr


def test_settings_are_named_by_their_side(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{n}", "answer": "{n}"}}\n' for n in range(40)))
    data = [word for side in ("reference", "port") for word in ("--set", f"{side}.data=rows.jsonl")]
    refused = quartet("env", "compare", "dataset", "dataset", *data, folder=tmp_path)
    assert refused.returncode == 2 and "reference.reward is missing" in refused.stderr
    refused = quartet("env", "compare", "dataset", "dataset", *data, "--set=reference.reward=number", folder=tmp_path)
    assert refused.returncode == 2 and "port.reward is missing" in refused.stderr
    assert "env.reward" not in refused.stderr and "--set env." not in refused.stderr


async def test_equal_speeds_show_no_difference_and_the_ratio_is_that_of_a_round(monkeypatch):
    sides = registered_sides(monkeypatch, Declared(), Declared(), 60.0)

    def measured(reference: list[float], port: list[float]) -> None:
        rates = {"slow": iter(reference), "fast": iter(port)}

        async def rate(env: config.Env, _: object) -> float:
            return next(rates[env.name])

        monkeypatch.setattr("quartet.env.port.speed._rate", rate)

    measured([100, 200, 50, 100, 100, 100], [110, 180, 60, 100, 90, 105])
    speed = await steps_per_second(*sides, [1])
    assert not speed.shows_difference and (speed.ratio_low, speed.ratio_high) == (0.9, 1.2)
    measured([100, 10, 40, 100, 100, 100], [300, 30, 120, 300, 300, 300])  # a load that both sides have
    speed = await steps_per_second(*sides, [1])
    assert speed.shows_difference and speed.ratio_low == speed.ratio == speed.ratio_high == 3
