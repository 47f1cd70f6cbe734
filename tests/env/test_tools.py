"""The tools and their generated problems: results, refusals, answers, and questions that are held out."""

import json

import pytest

from quartet import config
from quartet.actions.malformed_call import WRITE_CALL
from quartet.config import Recipe
from quartet.env import make_pool
from quartet.env.check.run import check_environment
from quartet.env.environment.tools import Tools
from quartet.env.opening import opening
from quartet.env.tools.problems import FAMILIES, FIRST_HELD_OUT_SEED, problem_of, solve
from quartet.env.tools.toolbox import TOOLS, Toolbox, ToolError, calculate, convert
from quartet.errors import ConfigError, EnvError
from quartet.part import NoSettings
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.types import Done, Outcome, Task, Text, ToolCall
from tests.command import quartet
from tests.rollout.scripted_engine import make_tokenizer

POOL = config.Env(name="tools", sessions=2)
HELD_OUT = FIRST_HELD_OUT_SEED


def toolbox() -> Toolbox:
    people = [("Ana", 30, "Rome"), ("Bob", 41, "Oslo")]
    return Toolbox({"lamp": {"price": 12, "weight": 3, "stock": 7}}, people)


def task(family: str, seed: int = 0) -> Task:
    return Task(env="tools", family=family, seed=seed)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("2 + 3 * 4", "14"), ("(2+3)*4", "20"), ("-7 / 2", "-3.5"), ("0.1 + 0.2", "0.3"), ("1 / 3", "0.333333")],
)
def test_the_calculator_computes_exactly(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "2 +",
        "2 ** 99999999",
        "__import__('os')",
        "a",
        "True + 1",
        "1 / 0",
        "(" * 150,
        "9" * 201,
        "\0",
        7,
        "1e999",
    ],
)
def test_the_calculator_refuses_what_is_no_arithmetic(expression):
    with pytest.raises(ToolError):
        calculate(expression)


def test_units_of_one_quantity_are_converted_and_others_refused():
    assert [convert(5, "kg", "g"), convert("2.5", "h", "min"), convert(90, "s", "min")] == ["5000", "150", "1.5"]
    for wrong in [(5, "kg", "m"), (5, "stone", "kg"), ("five", "kg", "g"), ("1e99999999", "kg", "g"), (1, ["kg"], "g")]:
        with pytest.raises(ToolError):
            convert(*wrong)


def test_the_database_is_read_and_nothing_else():
    tools = toolbox()
    assert tools.call("sql", {"query": "SELECT age FROM people WHERE name = 'Ana'"}) == "30"
    assert tools.call("sql", {"query": "select name, age from people order by age desc"}) == "Bob, 41\nAna, 30"
    assert tools.call("sql", {"query": "SELECT SUM(age) FROM people WHERE city = 'Lima'"}) == "None"
    assert tools.call("sql", {"query": "SELECT age FROM people WHERE age > 90"}) == "no rows"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n"
    written = ["DROP TABLE people", "UPDATE people SET age = 1", "ATTACH 'x' AS x", "PRAGMA page_size"]
    for query in [*written, endless, "SELECT random()", "SELECT zeroblob(9999999)", "nonsense", 3, "x" * 201]:
        assert refusal(tools, query)
    assert tools.call("sql", {"query": "SELECT COUNT(*) FROM people"}) == "2"


def refusal(tools: Toolbox, query: object) -> str:
    with pytest.raises(ToolError) as refused:
        tools.call("sql", {"query": query})
    return str(refused.value)


def test_a_query_that_takes_long_is_interrupted():
    people = [("Ana", age, "Rome") for age in range(60)]
    crossed = "SELECT COUNT(*) FROM people a, people b, people c, people d"
    assert refusal(Toolbox({}, people), crossed) == "interrupted"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("lookup", {"item": "sofa", "column": "price"}, "no item 'sofa': lamp"),
        ("lookup", {"item": "lamp", "column": "colour"}, "no column 'colour'"),
        ("lookup", {"item": "lamp"}, "lookup takes item, column"),
        ("dance", {}, "no tool dance: calculator, lookup, convert, sql"),
    ],
)
def test_a_wrong_call_is_told_why(name, arguments, error):
    assert toolbox().call("lookup", {"item": "lamp", "column": "stock"}) == "7"
    with pytest.raises(ToolError) as refused:
        toolbox().call(name, arguments)
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_question_of_held_out_seeds_is_asked_in_training(family):
    training = {problem_of(task(family, seed))[0].question for seed in range(100)}
    held_out = {problem_of(task(family, HELD_OUT + seed))[0].question for seed in range(30)}
    assert not training & held_out and len(held_out) > 5
    calls, answer = solve(*problem_of(task(family)))
    assert float(answer) and len(calls) + 2 <= (Tools(NoSettings()).max_turns(family) or 0)


async def test_the_environment_passes_all_checks():
    assert [one for one in await check_environment(POOL, range(3), lambda _: None) if not one.passed] == []


async def test_an_episode_in_text_and_with_typed_actions_is_the_same():
    calls, answer = solve(*problem_of(task("table_2")))
    env, typed = await make_pool(POOL).acquire(), Tools(NoSettings()).session()
    first, _ = await env.reset(task("table_2")), await typed.reset(task("table_2"))
    assert [message.role for message in first.messages] == ["user"] and first.tools == TOOLS
    for call in calls:
        written = await env.step(f"call {call.name} {json.dumps(call.arguments)}")
        assert written == await typed.act([call])  # pyright: ignore[reportAttributeAccessIssue]
        assert [message.name for message in written.observation.messages] == [call.name] and not written.terminated
    assert written.observation.messages[0].content == answer
    said, done = await env.step(f"It is {answer}."), await typed.act([Done(answer=answer)])  # pyright: ignore[reportAttributeAccessIssue]
    assert (said.reward, said.terminated, said.info) == (done.reward, done.terminated, done.info)
    assert said.reward == 1.0 and said.actions[0].action == Text(text=f"It is {answer}.")


async def test_a_call_that_cannot_be_read_or_done_is_an_error_to_the_policy_and_a_wrong_number_ends_the_episode():
    env = await make_pool(POOL).acquire()
    await env.reset(task("calculator_1"))
    for text, outcome in [
        ('call calculator {"expression": "2 + 3', Outcome.PARSE_ERROR),
        ('call calculator {"expression": "two"}', Outcome.REFUSED),
    ]:
        result = await env.step(text)
        assert result.actions[0].outcome is outcome and not result.terminated
        assert result.observation.messages[0].content.startswith("error: ")
    assert WRITE_CALL in (await env.step("call")).observation.messages[0].content
    wrong = await env.step("I believe it is 3.")
    assert (wrong.reward, wrong.terminated, wrong.info) == (0.0, True, {"success": False})


async def test_two_calls_in_one_response_are_done_in_order():
    env = Tools(NoSettings()).session()
    await env.reset(task("units_1"))
    calls = [ToolCall(name="calculator", arguments={"expression": text}) for text in ("1 + 1", "2 * 3")]
    result = await env.act(calls)  # pyright: ignore[reportAttributeAccessIssue]
    assert [message.content for message in result.observation.messages] == ["2", "6"]


async def test_what_no_session_can_do_is_an_error():
    env = Tools(NoSettings()).session()
    with pytest.raises(EnvError, match="before the first reset"):
        await env.step("7")
    with pytest.raises(ConfigError, match="unknown family 'table_9'"):
        await env.reset(task("table_9"))


async def test_the_examples_of_the_instructions_are_calls_that_work():
    tokenizer = make_tokenizer()
    shown = opening(recipe(), tokenizer)
    assert shown[0].role == "system" and all(tool.function.name in shown[0].content for tool in TOOLS)
    env = await make_pool(POOL).acquire()
    for message in shown:
        if message.role == "assistant" and message.content.startswith("call "):
            await env.reset(task("table_1"))
            result = await env.step(message.content)
            told = result.observation.messages[0].content
            assert result.actions[0].outcome is Outcome.DONE or told.startswith("error: no item 'bed'")
    assert "SELECT age" in tokenizer.decode(Renderer(tokenizer, opening=shown).start("Go."))


def recipe(loop: str = "append", history: str = "all") -> Recipe:
    rollout = {"loop": loop, "history": history}
    data = {"name": "t", "model": {"path": "."}, "env": {"name": "tools"}, "rollout": rollout}
    return parse_recipe(data, source="test")


def test_a_loop_that_forgets_results_is_refused_and_the_commands_use_another_one():
    with pytest.raises(ConfigError, match="the loop latest does not show the results"):
        recipe(loop="latest")
    with pytest.raises(ConfigError, match="the history latest does not show the results"):
        recipe(loop="screens", history="latest")
    done = quartet("env", "check", "tools", "--check", "declaration")
    assert done.returncode == 0, done.stderr
