"""The loop `dialogue`: an agent and a policy as its user, each with a conversation of its own."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.actions.taken import canonical
from quartet.config import Loop
from quartet.env import make_pool
from quartet.env.retail.session import RetailSession
from quartet.env.retail.tasks import scenario_of
from quartet.errors import EngineError, PromptTooLongError
from quartet.ledger import Ledger
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.report.totals import status_counts
from quartet.rollout.client import Model, ModelClient
from quartet.rollout.loop.base import Limits
from quartet.rollout.worker import RolloutWorker
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import RolloutPlan, Sampling, Status, Task, Trajectory

TOKENIZER = make_tokenizer()
TASK = Task(env="retail", family="return_1", seed=0)
SCENARIO = scenario_of(TASK)
CALL = canonical(SCENARIO.calls[0])


TOO_LONG = PromptTooLongError("prompt of 9 tokens, context of 8")


async def converse(
    agent: Sequence[str | PromptTooLongError], user: Sequence[str | PromptTooLongError], max_turns: int = 8
) -> list[Trajectory]:
    engines = {
        name: ScriptedEngine(TOKENIZER, lambda _, index, script=script: script[index])
        for name, script in (("agent", agent), ("user", user))
    }
    models = {
        name: ModelClient(
            engine, Renderer(TOKENIZER), sampling=Sampling(), conversation=name, policy=name, frozen=name == "user"
        )
        for name, engine in engines.items()
    }
    limits = Limits(max_turns=max_turns, max_tokens=200, timeout_seconds=30.0)
    return await build(Loop(name="dialogue")).run(TASK, RetailSession(policy_as_user=True), models, limits)


async def test_both_speak_in_their_own_conversations_and_share_the_reward():
    agent, user = await converse(["Which item?", CALL, "It is done."], ["The lamp.", "Thanks. ###STOP###"])
    assert [(one.role, one.part, one.policy) for one in (agent, user)] == [
        ("agent", "agent", "agent"),
        ("user", "user", "user"),
    ]
    for one in (agent, user):
        assert (one.status, one.rewards, one.success) == (Status.COMPLETED, {"task": 1.0}, True)
        for before, after in pairwise(one.calls):
            so_far = before.prompt_ids + before.response_ids
            assert after.prompt_ids[: len(so_far)] == so_far, "one branch"
    read = TOKENIZER.decode(agent.calls[-1].prompt_ids)
    assert "Which item?" in read and "The lamp." in read and "You are a customer" not in read
    heard = TOKENIZER.decode(user.calls[-1].prompt_ids)
    assert "You are a customer" in heard and "It is done." in heard and "return_items" not in heard
    assert [turn.response for turn in user.turns] == ["The lamp.", "Thanks. ###STOP###"]


async def test_the_limit_counts_the_agent_s_turns_and_a_wrong_end_is_no_success():
    agent, user = await converse(["Which item?"] * 3, ["The lamp."] * 3, max_turns=3)
    assert (agent.status, len(agent.turns), len(user.turns)) == (Status.TRUNCATED_TURNS, 3, 3)
    agent, user = await converse(["It is done."], ["###STOP###"])
    assert (agent.status, agent.reward, agent.success, user.success) == (Status.COMPLETED, 0.0, False, False)


async def test_a_prompt_that_is_too_long_ends_the_dialogue_only_if_it_is_the_agent_s():
    agent, _ = await converse(["Which item?", TOO_LONG], ["The lamp."])
    assert (agent.status, agent.reward) == (Status.TRUNCATED_TOKENS, 0.0)
    with pytest.raises(EngineError, match="the frozen policy 'user': prompt of 9 tokens") as raised:
        await converse(["Which item?"], [TOO_LONG])
    assert not isinstance(raised.value, PromptTooLongError), "it would be recorded as the agent's end"


@pytest.mark.parametrize(("trains_user", "status"), [(False, Status.ERROR_ENGINE), (True, Status.TRUNCATED_TOKENS)])
async def test_a_worker_treats_a_prompt_of_the_user_that_is_too_long_by_whether_the_user_is_trained(
    tmp_path: Path, trains_user: bool, status: Status
):
    data = {
        "name": "dialogue",
        "model": {"path": "none"},
        "env": {"name": "retail", "user": "policy"},
        "rollout": {"loop": "dialogue", "max_turns": 4, "max_attempts": 1},
        "policies": {"agent": {}, "user": {"trained": trains_user}},
    }
    recipe = parse_recipe(data, "test")
    ledger = Ledger.create(tmp_path / "run", trained=recipe.trained_policies, frozen=recipe.frozen_policies)
    for name in recipe.policy_sources:
        ledger.of(name).policies.register_initial("none")
    answers = {"agent": "Which item?", "user": TOO_LONG}
    models = {
        name: Model(ScriptedEngine(TOKENIZER, lambda *_, answer=answer: answer), Renderer(TOKENIZER))
        for name, answer in answers.items()
    }
    recorder, presence = Recorder(ledger.run_dir, "worker"), Presence(ledger.modules, "worker", interval_seconds=0.0)
    worker = RolloutWorker(recipe, ledger, models, make_pool(recipe.env), recorder, presence)
    ledger.groups.admit(RolloutPlan(task=TASK, num_rollouts=1, max_turns=4))
    assert await worker.run_queued() == 1
    assert status_counts(ledger) == {status: 1}
