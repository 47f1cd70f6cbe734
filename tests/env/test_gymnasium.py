"""Gymnasium environments as text: MiniGrid played by BabyAI's own bot, a text game, and a continuous action space."""

import random
import threading
from collections.abc import Iterable
from types import SimpleNamespace

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from quartet import config
from quartet.actions.error import ActionError
from quartet.env import make_environment, make_pool
from quartet.env.check.run import check_environment
from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.gym.actions import NamedActions, reader_of
from quartet.env.gym.session import GymSession
from quartet.env.host import EnvHost
from quartet.errors import ConfigError, EnvError, SetupError
from quartet.types import Outcome, StepResult, Task
from tests.waiting import until

GO_TO, LAKE, PENDULUM = "minigrid:BabyAI-GoToLocal-v0", "FrozenLake-v1", "Pendulum-v1"


def session(*ids: str, **settings: object) -> GymSession:
    made = make_environment(config.Env(name="gymnasium", ids=[*ids], **settings)).session()
    assert isinstance(made, GymSession)
    return made


def task(family: str, seed: int = 0) -> Task:
    return Task(env="gymnasium", family=family, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_actions_by_name_play_the_episode_that_the_bot_plays_in_the_environment_itself(seed):
    from minigrid.utils.baby_ai_bot import BabyAIBot

    original, ours = gymnasium.make("BabyAI-GoToLocal-v0"), session(GO_TO)
    original.reset(seed=seed)
    seen = ours.reset(task(GO_TO, seed))
    assert seen.goal.startswith(original.unwrapped.mission + "\nActions: one of left, right, forward")
    bot, last = BabyAIBot(original), None
    while True:
        last = bot.replan(last)
        _, reward, terminated, truncated, _ = original.step(last)
        result = ours.step(f"I go {last.name}")
        assert (result.reward, result.terminated, result.truncated) == (reward, terminated, truncated)
        if terminated or truncated:
            break
    assert terminated and result.info == {"success": True} and result.reward > 0


def test_the_view_names_each_object_where_it_stands():
    ours = session("minigrid:MiniGrid-Empty-5x5-v0")
    seen = ours.reset(task("minigrid:MiniGrid-Empty-5x5-v0"))
    walls = ["wall: 3 ahead", "wall: 1 to the left", "wall: 3 to the right"]
    assert seen.text.splitlines() == [*walls, "green goal: 2 ahead, 2 to the right", "carrying: nothing"]
    assert "green goal: 2 ahead, 2 to the left" in ours.step("right").observation.text.splitlines()
    ours.step("forward")
    assert "green goal: 1 ahead, 2 to the left" in ours.step("drop").observation.text.splitlines()


def test_an_environment_with_a_text_mode_shows_it_and_has_numbered_actions():
    ours = session(LAKE, options={"is_slippery": False})
    seen = ours.reset(task(LAKE))
    assert seen.text.split() == ["[S]FFF", "FHFH", "FFFH", "HFFG"] and "one of 0, 1, 2, 3" in seen.goal
    path = ["1", "1", "2", "1", "2", "2"]
    results = [ours.step(action) for action in path]
    assert results[-1].terminated and results[-1].reward == 1.0 and results[-1].info["success"]


def played(family: str, actions: Iterable[str], **settings: object) -> list[StepResult]:
    """Return the steps of an episode until it ends."""
    ours, results = session(family, **settings), list[StepResult]()
    ours.reset(task(family))
    for action in actions:
        results.append(ours.step(action))
        if results[-1].terminated or results[-1].truncated:
            break
    return results


def balanced(family: str) -> list[StepResult]:
    """Return the steps of a cart that pushes to the side to which its pole falls."""
    ours, results = session(family, text="values"), list[StepResult]()
    seen = ours.reset(task(family))
    while not results or not (results[-1].terminated or results[-1].truncated):
        _, _, angle, velocity = map(float, seen.text.strip("[]").split(","))
        results.append(ours.step("1" if angle + 0.5 * velocity > 0 else "0"))
        seen = results[-1].observation
    return results


def test_a_pole_that_falls_is_no_success_and_one_that_stands_to_the_limit_is_one():
    fell = played("CartPole-v1", ["1"] * 500)
    assert fell[-1].terminated and fell[-1].reward == 1.0 and fell[-1].info == {"success": False}
    stood = balanced("CartPole-v1")
    assert len(stood) == 500 and stood[-1].truncated and stood[-1].info == {"success": True}
    assert all(result.info == {} for result in stood[:-1])


@pytest.mark.parametrize(("least", "success"), [(None, False), (-13, True), (-12, False)])
def test_the_return_is_compared_with_the_reward_of_a_success_where_all_rewards_are_negative(least, success):
    path = ["0", *["1"] * 11, "2"]
    ended = played("CliffWalking-v1", path, success_reward=least)[-1]
    assert ended.terminated and ended.reward == -1.0 and ended.info == {"success": success}


def test_a_setting_overrides_the_registered_threshold():
    path = ["1", "1", "2", "1", "2", "2"]
    for least, success in ((None, True), (1.0, True), (1.5, False)):
        ended = played(LAKE, path, options={"is_slippery": False}, success_reward=least)[-1]
        assert ended.reward == 1.0 and ended.info == {"success": success}
    drowned = played(LAKE, ["1", "2"], options={"is_slippery": False})[-1]
    assert drowned.terminated and drowned.info == {"success": False}


def test_every_episode_has_a_return_of_its_own():
    ours = session("CartPole-v1", success_reward=12)
    for _ in range(3):
        ours.reset(task("CartPole-v1"))
        ended = next(result for result in (ours.step("1") for _ in range(99)) if result.terminated)
        assert ended.info == {"success": False}


def test_a_response_without_an_action_changes_nothing():
    ours = session(LAKE)
    before = ours.reset(task(LAKE))
    result = ours.step("go 17 somewhere")
    assert (result.observation.text, result.reward, result.terminated) == (before.text, 0.0, False)
    assert result.actions[0].outcome is Outcome.PARSE_ERROR and "one of 0, 1, 2, 3" in result.observation.error


def test_a_continuous_action_is_json_within_its_space():
    ours = session(PENDULUM)
    ours.reset(task(PENDULUM))
    assert ours.step("torque:\n[1.5]").observation.error == ""
    assert "outside the space" in ours.step("[9]").observation.error
    assert "no action" in ours.step('{"a": [').observation.error


def test_the_last_and_longest_name_of_a_response_counts():
    reader = NamedActions(["turn", "turn left", "go"], first=5)
    assert reader.read("go, then Turn left.") == (6, "turn left")
    draw = random.Random(0)
    for _ in range(200):
        names = [draw.choice("abc") * draw.randint(1, 4) for _ in range(draw.randint(1, 5))]
        reader = NamedActions(["aa", "b"])
        known = [name for name in names if name in ("aa", "b")]
        if known:
            assert reader.read(" ".join(names))[1] == known[-1]


def test_names_that_differ_in_case_alone_are_told_apart():
    """The moves of chess have such names: a pawn takes, or the bishop."""
    reader = NamedActions(["bxc3", "Bxc3", "Kd2"])
    assert [reader.read(text)[0] for text in ("bxc3", "Bxc3", "kd2")] == [0, 1, 2]
    with pytest.raises(ActionError, match="no action"):
        reader.read("BXC3")


@pytest.mark.parametrize("space", [gymnasium.spaces.MultiBinary(3), gymnasium.spaces.MultiDiscrete([2, 2, 2])])
def test_arrays_are_json(space):
    action, _ = reader_of(SimpleNamespace(action_space=space), []).read("I press\n[1, 0, 1]")
    assert space.contains(action) and action.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("space", "names", "message"),
    [
        (gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)}), [], "cannot be read from text"),
        (gymnasium.spaces.Discrete(3), ["left", "right"], "2 different names for 3 actions"),
        (gymnasium.spaces.Discrete(2), ["left", "left"], "1 different names for 2 actions"),
        (gymnasium.spaces.MultiBinary(2), ["left", "right"], "only a Discrete space has names"),
    ],
)
def test_a_space_that_cannot_be_read_and_names_that_do_not_fit_are_refused(space, names, message):
    with pytest.raises(ConfigError, match=message):
        reader_of(SimpleNamespace(action_space=space), names)


def test_unknown_ids_and_missing_packages_are_errors_with_advice():
    with pytest.raises(ConfigError, match="FrozenLak"):
        make_environment(config.Env(name="gymnasium", ids=["FrozenLak-v1"])).max_turns("FrozenLak-v1")
    with pytest.raises(SetupError, match=r"(?s)'nothing_here': .*is installed, on PYTHONPATH") as refused:
        make_environment(config.Env(name="gymnasium", ids=["nothing_here:A-v1"])).max_turns("nothing_here:A-v1")
    assert "quartet-rl" not in str(refused.value), "the extra does not install the user's module"
    with pytest.raises(SetupError, match=r"quartet-rl\[gymnasium\]"):
        make_environment(config.Env(name="gymnasium", ids=["minigrid.absent:A-v1"])).max_turns("minigrid.absent:A-v1")


class Unreadable(gymnasium.Env):
    """Simulator whose actions cannot be read from text."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})
    closed = 0

    def close(self) -> None:
        Unreadable.closed += 1


def test_a_family_that_was_refused_is_refused_again_in_a_session_that_played_another(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Unreadable-v0", EnvSpec("Unreadable-v0", Unreadable))
    monkeypatch.setattr(Unreadable, "closed", 0)
    ours = session(LAKE, "Unreadable-v0")
    ours.reset(task(LAKE))
    for time in (1, 2):
        with pytest.raises(ConfigError, match="cannot be read from text"):
            ours.reset(task("Unreadable-v0"))
        assert Unreadable.closed == time
    assert ours.reset(task(LAKE)).text


class Gated(gymnasium.Env):
    """Simulator whose method `held` ends once `go` is set."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)
    held, go, ended = "", threading.Event(), list[str]()

    def __init__(self) -> None:
        self._end("make")

    def reset(self, **_: object) -> tuple[int, dict[str, object]]:
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, object]]:
        self._end("step")
        return 0, 0.0, False, False, {}

    def close(self) -> None:
        self._end("close")

    def _end(self, method: str) -> None:
        if method == self.held:
            self.go.wait()
        self.ended.append(method)


@pytest.mark.parametrize(("held", "before"), [("make", []), ("step", ["make"])])
async def test_an_environment_is_closed_once_a_call_that_exceeded_its_limit_has_ended(held, before, monkeypatch):
    gymnasium.register("Gated-v0", Gated, disable_env_checker=True)
    monkeypatch.setattr(Gated, "held", held)
    monkeypatch.setattr(Gated, "go", threading.Event())
    monkeypatch.setattr(Gated, "ended", [])
    limits = Deadlines(reset=0.2) if held == "make" else Deadlines(reset=600.0, step=0.2)
    pool = make_pool(config.Env(name="gymnasium", ids=["Gated-v0"], sessions=1))
    host = EnvHost(pool, name="gymnasium", capacity=1, token="t", deadlines=limits)
    await host.start()
    remote = RemoteEnvPool(lambda: [host.url], 1, token="t", request_timeout_seconds=600.0)
    try:
        env = await remote.acquire()
        with pytest.raises(EnvError, match=r"no answer within 0\.2 s"):
            await env.reset(task("Gated-v0"))
            await env.step("1")
        assert Gated.ended == before
        Gated.go.set()
        await until(lambda: Gated.ended == [*before, held, "close"])
    finally:
        await remote.close()
        await host.stop()
        del gymnasium.registry["Gated-v0"]


async def test_minigrid_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="gymnasium", sessions=2, ids=[GO_TO], turn_limit=8)
    results = await check_environment(env, range(1), lambda _: None)
    assert [result for result in results if not result.passed] == []
