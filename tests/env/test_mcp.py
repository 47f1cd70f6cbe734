"""An MCP server's tools as the action space, against a real server by stdio and by HTTP."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
from mcp import MCPError

from quartet import config
from quartet.actions.format.hermes import Hermes
from quartet.env import make_pool
from quartet.env.base import Env, acting
from quartet.errors import ConfigError, EnvError, SetupError
from quartet.free_port import free_port
from quartet.part import NoSettings
from quartet.recipe.file import parse_recipe
from quartet.types import Done, Outcome, Task, ToolCall
from quartet.types.frame import Screen
from tests.waiting import until

SERVER = Path(__file__).with_name("tool_server.py")
ROWS = [
    {"prompt": f"Leave {goal} apples.", "item": "apple", "count": goal + 2, "goal": goal, "answer": "done"}
    for goal in range(20)
]
HIDDEN = {"reset_tool": "restart", "reward_tool": "judge"}


@pytest.fixture
def data(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(file)


@contextmanager
def served(**variables: str) -> Iterator[str]:
    """Give the address of a server with these environment variables."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, SERVER, "http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
    ) as server:
        address = f"http://127.0.0.1:{port}/mcp"
        while server.poll() is None:
            try:
                urlopen(address, timeout=5)
            except HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        try:
            yield address
        finally:
            server.kill()


@pytest.fixture
def url() -> Iterator[str]:
    with served() as address:
        yield address


@asynccontextmanager
async def session(data: str, **settings: object) -> AsyncIterator[Env]:
    settings = {"command": [sys.executable, str(SERVER), "stdio"]} | settings if "url" not in settings else settings
    pool = make_pool(config.Env(name="mcp", data=data, sessions=1, **settings))
    env = await pool.acquire()
    try:
        yield env
    finally:
        await pool.release(env, healthy=True)
        await pool.close()


def task(seed: int = 0) -> Task:
    return Task(env="mcp", family="rows", seed=seed)


def sell(count: int) -> ToolCall:
    return ToolCall(name="sell", arguments={"item": "apple", "count": count})


async def play(env: Env) -> None:
    seen = await env.reset(task())
    assert [tool.function.name for tool in seen.tools] == ["sell"], "its own tools are hidden"
    assert seen.tools[0].function.parameters["properties"]["count"]["type"] == "integer"
    result = await acting(env).act([sell(99), ToolCall(name="steal"), sell(2)])
    assert [message.role for message in result.observation.messages] == ["tool"] * 3
    refused, unknown, left = (message.content for message in result.observation.messages)
    assert "only" in refused and unknown == "no tool steal: sell" and left.endswith("left")
    outcomes = [record.outcome for record in result.actions]
    assert outcomes == [Outcome.REFUSED, Outcome.REFUSED, Outcome.DONE]
    result = await env.step("I sold two.")
    assert result.terminated and result.rewards == {"judge": 1.0} and result.info["success"]
    await env.reset(task())
    assert (await env.step("nothing")).reward == 0.0, "the second episode begins with the row's own stock"


@pytest.mark.slow
async def test_a_policy_plays_by_stdio(data):
    async with session(data, **HIDDEN) as env:
        await play(env)


@pytest.mark.campaign
async def test_a_policy_plays_by_http(data, url):
    async with session(data, url=url, **HIDDEN) as env:
        await play(env)


@pytest.mark.slow
async def test_a_server_by_stdio_gets_only_the_environment_variables_that_the_recipe_names(data, monkeypatch):
    monkeypatch.setenv("SHOP_OWNER", "Ana")
    for names, answer in (([], "no tool owner: restart, sell, judge"), (["SHOP_OWNER"], "Ana")):
        async with session(data, reward="exact_match", env_variables=names) as env:
            await env.reset(task())
            result = await acting(env).act([ToolCall(name="owner")])
            assert result.observation.messages[0].content == answer


def with_columns(folder: Path, **columns: object) -> str:
    """Write a data set whose rows have these columns, too."""
    file = folder / "own.jsonl"
    file.write_text("".join(json.dumps({**row, **columns}) + "\n" for row in ROWS))
    return str(file)


@pytest.mark.slow
async def test_a_reset_may_take_longer_than_a_step(tmp_path):
    limits = {"step_timeout_seconds": 1.0, "reset_timeout_seconds": 120.0}
    async with session(with_columns(tmp_path, seconds=1.5), **limits, **HIDDEN) as env:
        assert (await env.reset(task())).tools


@pytest.mark.slow
async def test_a_reset_tool_that_fails_is_a_failure_of_the_environment_and_not_of_its_reward(tmp_path):
    async with session(with_columns(tmp_path, count=-1), **HIDDEN) as env:
        with pytest.raises(EnvError, match=r"'restart' failed: .*no such stock"):
            await env.reset(task())


@pytest.mark.slow
async def test_tools_on_later_pages_are_listed_too(data, monkeypatch):
    monkeypatch.setenv("SHOP_PAGES", "1")
    async with session(data, env_variables=["SHOP_PAGES"], **HIDDEN) as env:
        await play(env)


@pytest.mark.slow
async def test_a_call_that_is_too_slow_is_the_policy_s_mistake_and_the_calls_after_it_are_not_started(
    data, monkeypatch
):
    monkeypatch.setenv("SHOP_OWNER", "Ana")
    slow = [ToolCall(name="owner"), ToolCall(name="wait_for_owner"), sell(1)]
    async with session(data, env_variables=["SHOP_OWNER"], step_timeout_seconds=10.0, **HIDDEN) as env:
        await env.reset(task())
        result = await asyncio.wait_for(acting(env).act(slow), 10.0)
        assert [record.outcome for record in result.actions] == [Outcome.DONE, Outcome.TIMEOUT, Outcome.ENDED]
        owner, late, unstarted = (message.content for message in result.observation.messages)
        assert owner == "Ana" and late.startswith("wait_for_owner did not answer within")
        assert unstarted.startswith("not started")
        assert not result.terminated
        assert (await env.step('call sell {"item": "apple", "count": 2}')).actions[0].outcome is Outcome.DONE
        assert (await env.step("I sold two.")).rewards == {"judge": 1.0}


@pytest.mark.slow
async def test_a_server_by_http_gets_the_token_of_the_named_variable(data, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_A_TEST", "s3cret")
    with served(SHOP_TOKEN="s3cret") as address:
        async with session(data, url=address, token_variable="TOKEN_OF_A_TEST", **HIDDEN) as env:
            await play(env)
        async with session(data, url=address, **HIDDEN) as env:
            with pytest.raises(ExceptionGroup):
                await env.reset(task())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"command": ["x"], "env_variables": ["NO_SUCH_SECRET"]}, r"env\.env_variables: NO_SUCH_SECRET is not set"),
        ({"url": "http://x", "token_variable": "NO_SUCH_SECRET"}, r"env\.token_variable: NO_SUCH_SECRET is not set"),
    ],
)
def test_a_variable_that_is_not_set_ends_the_run_at_its_start(settings, named, data):
    with pytest.raises(SetupError, match=named):
        make_pool(config.Env(name="mcp", data=data, reward="exact_match", **settings))


def test_prompts_that_lack_results_are_refused(data):
    recipe = {"name": "x", "model": {"path": "."}}
    env = {"name": "mcp", "data": data, "reward": "exact_match", "url": "http://x"}
    for rollout in ({"loop": "latest"}, {"loop": "screens", "history": "latest"}):
        with pytest.raises(ConfigError, match="latest does not show the results"):
            parse_recipe({**recipe, "env": env, "rollout": rollout}, "test")


def test_a_reward_of_the_server_alone_leaves_the_other_checks_in_place(data):
    table = {"name": "mcp", "data": data, "command": ["x"], "reward_tool": "judge"}
    recipe = {"name": "x", "model": {"path": "."}, "env": table, "rollout": {"loop": "append"}}
    assert parse_recipe(recipe, "test").env.settings["reward"] == []
    with pytest.raises(ConfigError, match=r"evaluation\.first_seed is lower"):
        parse_recipe({**recipe, "evaluation": {"first_seed": 1000}}, "test")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": ["x"], "token_variable": "A"}, r"env\.token_variable is set, which needs env\.url"),
        ({"url": "http://x", "env_variables": ["A"]}, r"env\.env_variables is set, which needs env\.command"),
    ],
)
def test_secrets_of_the_other_kind_of_server_are_refused(settings, message, data):
    table = {"name": "mcp", "data": data, "reward": "exact_match"} | settings
    recipe = {"name": "x", "model": {"path": "."}, "env": table, "rollout": {"loop": "append"}}
    with pytest.raises(ConfigError, match=message):
        parse_recipe(recipe, "test")


@pytest.mark.slow
async def test_a_server_that_never_answers_ends_with_the_session_whose_reset_was_given_up(data):
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    settings = config.Env(name="mcp", data=data, command=silent, step_timeout_seconds=3600.0, **HIDDEN)
    pool = make_pool(settings)
    env = await pool.acquire()
    reset = asyncio.create_task(env.reset(task()))

    def running() -> list[int]:
        processes = [one.info for one in psutil.process_iter(["pid", "ppid", "cmdline"])]
        return [one["pid"] for one in processes if one["ppid"] == os.getpid() and silent[-1] in (one["cmdline"] or [])]

    await until(running, reset)
    reset.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reset
    await asyncio.wait_for(pool.release(env, healthy=False), 60)
    assert not running()


@pytest.mark.slow
async def test_without_a_reset_tool_every_episode_has_a_server_of_its_own(data):
    async with session(data, reward="exact_match") as env:
        await env.reset(task())
        await acting(env).act([ToolCall(name="restart", arguments={"item": "apple", "count": 5})])
        assert (await acting(env).act([sell(1)])).observation.messages[0].content == "4 left"
        await env.reset(task())
        result = await env.step('call sell {"item": "apple", "count": 1}')
        assert "only 0" in result.observation.messages[0].content
        assert (await env.step("done")).reward == 1.0


@pytest.mark.slow
async def test_arguments_that_the_protocol_refuses_are_the_policys_mistake(data):
    async with session(data, **HIDDEN) as env:
        await env.reset(task())
        result = await acting(env).act([sell(-1), sell(2)])
        assert [message.content for message in result.observation.messages] == ["count is negative", "0 left"]
        assert [record.outcome for record in result.actions] == [Outcome.REFUSED, Outcome.DONE]
        with pytest.raises(MCPError, match="out of reach"):
            await acting(env).act([sell(0)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "written", ['call sell {"item": "apple", "count": 2', "call sell", 'Now:\n- Call sell {"count": ']
)
async def test_a_call_that_cannot_be_read_is_no_answer(data, written):
    async with session(data, reward="number", **HIDDEN) as env:
        await env.reset(task())
        result = await env.step(written)
        assert not result.terminated and "write call NAME" in result.observation.messages[0].content
        assert [record.outcome for record in result.actions] == [Outcome.PARSE_ERROR]


@pytest.mark.slow
async def test_the_reported_reward_is_added_and_compared_with_the_reward_of_a_success(data):
    async with session(data, reward={"name": "exact_match", "weight": 0.5}, success_reward=0.5, **HIDDEN) as env:
        await env.reset(task())
        result = await env.step("done")
        assert result.rewards == {"exact_match": 0.5, "judge": 0.0} and result.info["success"]


@pytest.mark.slow
async def test_the_result_of_the_reset_is_shown_below_the_row_if_that_is_set(data):
    async with session(data, **HIDDEN) as env:
        (asked,) = (await env.reset(task())).messages
    async with session(data, **HIDDEN, show_reset=True, system="Sell.") as env:
        seen = await env.reset(task())
        assert [one.content for one in seen.messages] == ["Sell.", f"{asked.content}\nok"]


@pytest.mark.slow
async def test_the_last_turn_has_the_servers_reward_without_an_answer(data):
    async with session(data, **HIDDEN, turn_limit=2) as env:
        await env.reset(task())
        first = await acting(env).act([sell(2)])
        assert not first.truncated and first.reward == 0.0
        last = await env.step("call sell {")
        assert (last.truncated, last.terminated, last.rewards) == (True, False, {"judge": 1.0})
        assert last.info["success"]
        await env.reset(task())
        assert not (await acting(env).act([sell(2)])).truncated, "the turns are counted from the reset"


@pytest.mark.slow
async def test_a_hidden_tool_that_is_missing_and_a_recipe_without_a_server_are_named(data):
    async with session(data, reset_tool="restarts") as env:
        with pytest.raises(ConfigError, match="restart"):
            await env.reset(task())
    with pytest.raises(ConfigError, match=r"no effect without env\.reset_tool"):
        env = {"name": "mcp", "data": data, "url": "http://x", "reward": "number", "show_reset": True}
        parse_recipe({"name": "x", "model": {"path": "."}, "env": env, "rollout": {"loop": "append"}}, "test")
    recipe = {"name": "x", "model": {"path": "."}, "env": {"name": "mcp", "data": data}}
    with pytest.raises(ConfigError, match=r"env\.command or env\.url"):
        parse_recipe(recipe, "test")


@pytest.mark.slow
async def test_the_results_of_calls_before_a_wrong_answer_are_read_in_the_next_try(data):
    async with session(data, reward="exact_match", tries=2, reset_tool="restart") as env:
        await env.reset(task())
        result = await acting(env).act([sell(2), Done(answer="no")])
        assert not result.terminated and result.observation.text.startswith("That is not right")
        (left,) = result.observation.messages
        assert (left.role, left.name) == ("tool", "sell") and left.content.endswith("left")
        assert (await env.step("done")).reward == 1.0


def test_hermes_calls_are_actions_and_other_text_is_the_answer():
    text = (
        'Let me see.\n<tool_call>\n{"name": "sell", "arguments": {"item": "a"}}\n</tool_call>\n<tool_call>{"name": "b"}'
    )
    calls = Hermes(NoSettings()).parse(text, Screen())
    assert calls == [ToolCall(name="sell", arguments={"item": "a"}), ToolCall(name="b")]
