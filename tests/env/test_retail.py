"""The shop and its customers: what may be changed, who may learn what, and what is worth a reward."""

import pytest

from quartet import config
from quartet.actions.format.hermes import Hermes
from quartet.actions.malformed_call import WRITE_CALL
from quartet.env import make_environment
from quartet.env.base import acting
from quartet.env.check.run import check_environment
from quartet.env.retail.customer import STOP
from quartet.env.retail.session import RetailSession
from quartet.env.retail.shop import RefusedError
from quartet.env.retail.tasks import FAMILIES, scenario_of
from quartet.part import NoSettings
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.rollout.formatted_env import FormattedEnv
from quartet.types import Outcome, Task, ToolCall
from tests.rollout.scripted_engine import make_tokenizer

HELD_OUT = 1_000_000


def task(family: str, seed: int = 0) -> Task:
    return Task(env="retail", family=family, seed=seed)


def test_two_shops_are_equal_if_they_hold_the_same_in_any_order_and_differ_in_any_field():
    scenario = scenario_of(task("both_3"))
    other = scenario.shop.copy()
    other.orders = dict(reversed(other.orders.items()))
    assert other == scenario.shop != scenario.goal
    order = next(iter(other.orders.values()))
    order.address += "a"
    assert other != scenario.shop


@pytest.mark.parametrize("family", FAMILIES)
def test_every_wish_can_be_fulfilled_and_needs_what_the_customer_knows(family):
    for seed in range(50):
        scenario = scenario_of(task(family, seed))
        known = " ".join(scenario.facts.values())
        values = [value for call in scenario.calls for value in call.arguments.values()]
        assert all(value in known for one in values for value in (one if isinstance(one, list) else [one]))
        assert scenario.goal != scenario.shop or scenario.outputs
    names = {one.name for seed in range(50) for one in scenario_of(task(family, seed)).shop.customers.values()}
    later = scenario_of(task(family, HELD_OUT)).shop.customers.values()
    assert names.isdisjoint(one.name for one in later)


def test_the_rules_of_the_shop_hold_and_null_arguments_are_ignored():
    scenario = scenario_of(task("cancel_1"))
    shop, (order, *_) = scenario.shop.copy(), scenario.calls[0].arguments.values()
    delivered = next(name for name, one in shop.orders.items() if one.status == "delivered")
    wrong = [
        ("cancel_order", {"order": delivered, "reason": "no longer needed"}, "is delivered, not pending"),
        ("cancel_order", {"order": order, "reason": "a whim"}, "the reason is one of"),
        ("cancel_order", {"order": order}, "takes order, reason"),
        ("cancel_order", {"order": [order], "reason": "no longer needed"}, "takes order, reason"),
        ("return_items", {"order": delivered, "items": ["a car"]}, "items of"),
        ("return_items", {"order": order, "items": ["lamp"]}, "is pending, not delivered"),
        ("find_customer", {"name": "Ana", "zip": "0"}, "no customer"),
        ("get_order", {"order": "W1"}, "no order"),
        ("refund", {}, "no tool"),
    ]
    for name, arguments, message in wrong:
        with pytest.raises(RefusedError, match=message):
            shop.call(name, arguments)
    assert shop == scenario.shop
    shop.call("get_order", {"order": order, "customer": None})


async def test_the_script_tells_what_it_is_asked_and_ends_without_a_question():
    session, scenario = RetailSession(policy_as_user=False), scenario_of(task("cancel_1"))
    seen = await session.reset(task("cancel_1"))
    assert [message.role for message in seen.messages] == ["system", "user"] and len(seen.tools) == 5
    answer = (await session.step("What is your name? And the zip code?")).observation.messages
    assert [message.content for message in answer] == [f"{scenario.facts['name']} {scenario.facts['zip']}"]
    (call,) = scenario.calls
    done = await acting(session).act([call, call])
    assert [record.outcome for record in done.actions] == [Outcome.DONE, Outcome.REFUSED]
    result = await session.step("It is cancelled.")
    assert result.terminated and result.info["success"] and result.reward == 1.0
    await session.reset(task("cancel_1"))
    assert (await session.step("It is cancelled.")).reward == 0.0, "a new episode has a new database"


@pytest.mark.parametrize("written", ['call get_order {"order": "W1"', "call get_order", "I look.\n- Call get_order {"])
async def test_a_call_that_cannot_be_read_is_not_said_to_the_customer(written):
    for policy_as_user in (False, True):
        session = RetailSession(policy_as_user=policy_as_user)
        await session.reset(task("cancel_1"))
        result = await session.step(written)
        assert not result.terminated and result.info.get("speaker", "agent") == "agent"
        assert [(one.role, one.content) for one in result.observation.messages] == [("tool", f"error: {WRITE_CALL}")]
        assert [record.outcome for record in result.actions] == [Outcome.PARSE_ERROR]
    said = (await session.step("Please call the bank.")).observation.messages
    assert said[-1].content == "Please call the bank.", "a sentence is a message"


async def test_a_question_is_answered_only_by_telling_the_customer():
    session, (output,) = RetailSession(policy_as_user=False), scenario_of(task("question_1")).outputs
    for said, reward in ((output.upper(), 1.0), ("It is on its way.", 0.0)):
        await session.reset(task("question_1"))
        assert (await session.step(said)).reward == reward


async def test_a_policy_as_user_hears_its_instructions_once_and_only_what_the_agent_says():
    session, scenario = RetailSession(policy_as_user=True), scenario_of(task("return_1"))
    await session.reset(task("return_1"))
    looked = await acting(session).act([ToolCall(name="get_order", arguments={"order": "W1"})])
    assert looked.info == {"speaker": "agent"}
    heard = await session.step("Which item?")
    assert heard.info == {"speaker": "user"}
    assert [message.role for message in heard.observation.messages] == ["system", "assistant", "user"]
    assert all(fact in heard.observation.messages[0].content for fact in scenario.facts.values())
    answered = await session.step('call get_order {"order": "W1"}')
    assert answered.observation.messages[0].role == "user" and answered.info == {"speaker": "agent"}
    again = await session.step("I see.")
    assert [message.content for message in again.observation.messages] == ["I see."]
    assert (await session.step(f"Thanks. {STOP}")).terminated


def test_prompts_that_lack_the_dialogue_are_refused():
    recipe = {"name": "x", "model": {"path": "."}, "env": {"name": "retail"}}
    for rollout in ({"loop": "latest"}, {"loop": "screens", "history": "latest"}):
        with pytest.raises(Exception, match="latest does not show the dialogue"):
            parse_recipe(recipe | {"rollout": rollout}, "test")


def test_a_policy_as_user_needs_the_loop_dialogue_and_a_policy():
    recipe = {"name": "x", "model": {"path": "."}, "env": {"name": "retail", "user": "policy"}}
    with pytest.raises(Exception, match="needs the loop 'dialogue'"):
        parse_recipe(recipe | {"rollout": {"loop": "append"}}, "test")
    with pytest.raises(Exception, match="the recipe has no such policy"):
        parse_recipe(recipe | {"rollout": {"loop": "dialogue"}}, "test")
    with pytest.raises(Exception, match="perhaps the user"):
        policies = {"user": {}, "agent": {}}
        parse_recipe(recipe | {"rollout": {"loop": "dialogue"}, "policies": policies}, "test")


@pytest.mark.slow
async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    results = await check_environment(config.Env(name="retail", sessions=2), range(2), lambda _: None)
    assert [result for result in results if not result.passed] == []
    assert make_environment(config.Env(name="retail")).expert("both_3", 0) is not None


@pytest.mark.parametrize(
    "said",
    [
        "<tool_call>{bad",
        '<tool_call>{"name": "get_order", "arguments": {"order": "W1"}}</tool_call>',
        f'{STOP} <tool_call>{{"name": "get_order"}}</tool_call>',
    ],
)
async def test_what_the_user_writes_in_a_format_of_tool_calls_reaches_the_agent_as_it_is(said):
    session = FormattedEnv(RetailSession(policy_as_user=True), Hermes(NoSettings()), Renderer(make_tokenizer()))
    await session.reset(task("return_1"))
    await session.step("Which item?")
    answered = await session.step(said)
    assert answered.terminated == (STOP in said)
    assert [message.content for message in answered.observation.messages] == ([] if STOP in said else [said])
