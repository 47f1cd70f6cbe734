"""Tasks that begin where an expert has few actions left, and a record of what the expert did."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet import config
from quartet.env import make_environment, make_pool
from quartet.env.base import Env
from quartet.env.environment.locks import LocksEnv, solution
from quartet.errors import EnvError
from quartet.ledger.soundness import find_flaw
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.formatted_env import FormattedEnv
from quartet.rollout.loop.base import Limits
from quartet.rollout.warm_env import WarmStarts
from quartet.types import ACTIONS_LEFT, Observation, Outcome, Sampling, Task, Trajectory

LOCK = Task(env="locks", family="safe", seed=3)
LOCKS = config.Env(name="locks", screenshots=False)
PIES = config.Env(name="miniwob", suite="miniwob-all")


def begun(task: Task, left: int) -> Task:
    return replace(task, params={ACTIONS_LEFT: left})


def starts(env: config.Env = LOCKS) -> WarmStarts:
    return WarmStarts(env)


class Counted(LocksEnv):
    """A session that counts its resets and steps, and refuses tasks with parameters, as an environment may."""

    def __init__(self) -> None:
        super().__init__()
        self.resets = self.steps = 0

    async def reset(self, task: Task) -> Observation:
        assert not task.params
        self.resets += 1
        return await super().reset(task)

    async def step(self, action: str):
        self.steps += 1
        return await super().step(action)


@pytest.mark.parametrize("left", [1, 2, 4, 5, 9])
async def test_a_task_begins_where_the_expert_has_so_many_actions_left(left: int):
    right = solution(LOCK)
    task, env = begun(LOCK, left), starts().session(LocksEnv(), begun(LOCK, left))
    seen = await env.reset(task)
    done = right[: max(len(right) - left, 0)]
    assert [action.canonical for action in seen.prepared] == done
    assert {action.outcome for action in seen.prepared} <= {Outcome.DONE}
    for press in right[len(done) :]:
        result = await env.step(press)
    assert result.terminated and result.reward == 1.0


async def test_the_expert_plays_each_task_once_and_a_whole_task_is_not_touched():
    env, warm = Counted(), starts()
    assert warm.session(env, LOCK) is env
    for repeat, (resets, steps) in enumerate([(2, 5 + 4), (1, 4), (1, 4)]):
        before = (env.resets, env.steps)
        seen = await warm.session(env, begun(LOCK, 1)).reset(begun(LOCK, 1))
        assert (env.resets - before[0], env.steps - before[1]) == (resets, steps), repeat
    assert len(seen.prepared) == 4 and (await env.reset(LOCK)).prepared == []


async def play(task: Task, loop: str, responses: list[str]) -> tuple[Trajectory, Any]:
    tokenizer: Any = make_tokenizer()
    engine = ScriptedEngine(tokenizer, lambda request, _: responses[int(request.request_id.split("/")[-1])])
    model = ModelClient(engine, Renderer(tokenizer), sampling=Sampling(), conversation="w/1.1")
    env = starts().session(LocksEnv(), task)
    limits = Limits(max_turns=8, max_tokens=32, timeout_seconds=30.0)
    (trajectory,) = await build(config.Loop(name=loop), build(config.History())).run(task, env, {"main": model}, limits)
    return trajectory, tokenizer


async def test_the_record_has_the_expert_s_actions_and_the_prompts_of_latest_show_them():
    right = solution(LOCK)
    trajectory, tokenizer = await play(begun(LOCK, 2), "latest", right[3:])
    assert trajectory.success and len(trajectory.turns) == 2 and len(trajectory.calls) == 2
    assert find_flaw(trajectory) is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(trajectory), type=Trajectory) == trajectory
    first, second = trajectory.turns
    assert [action.canonical for action in first.observation.prepared] == right[:3]
    assert second.observation.prepared == []
    shown = [tokenizer.decode(call.prompt_ids) for call in trajectory.calls]
    whole, _ = await play(LOCK, "latest", right)
    assert shown == [tokenizer.decode(call.prompt_ids) for call in whole.calls[3:]], "as if the policy had acted"


async def test_calls_of_tools_are_shown_as_messages():
    settings = config.Env(name="tools", screenshots=False)
    task = Task(env="tools", family="table_3", seed=0)
    session = await make_pool(settings).acquire()
    seen = await starts(settings).session(session, begun(task, 1)).reset(begun(task, 1))
    opening = await session.reset(task)
    expert = make_environment(settings).expert(task.family, task.seed)
    assert expert is not None and seen.tools == opening.tools
    roles = [message.role for message in seen.messages]
    assert roles == ["user"] + ["assistant", "tool"] * len(seen.prepared) and len(seen.prepared) >= 2
    calls = [message.content for message in seen.messages if message.role == "assistant"]
    assert calls == [expert(opening) for _ in calls]


class Wrong(LocksEnv):
    """A session in which nothing is ever right."""

    async def step(self, action: str):
        return replace(await super().step(action), reward=0.0, terminated=True, info={"success": False})


@pytest.mark.parametrize(
    ("settings", "task", "session", "problem"),
    [
        (LOCKS, LOCK, Wrong(), "the expert does not solve locks/safe/3"),
        (PIES, Task(env="miniwob", family="click-pie", seed=0), LocksEnv(), "has no expert"),
    ],
)
async def test_a_task_that_no_expert_solves_cannot_begin_half_done(
    settings: config.Env, task: Task, session: Env, problem: str
):
    env = starts(settings).session(session, begun(task, 1))
    with pytest.raises(EnvError, match=problem):
        await env.reset(begun(task, 1))


@pytest.mark.browser
async def test_a_form_in_the_browser_begins_filled():
    settings = config.Env(name="miniwob", suite="miniwob-24", screenshots=False, sessions=1)
    pool, warm = make_pool(settings), starts(settings)
    session = await pool.acquire()
    task = Task(env="miniwob", family="login-user", seed=5)
    whole = await session.reset(task)
    for left, filled in ((3, 0), (2, 1), (1, 2)):
        seen = await warm.session(session, begun(task, left)).reset(begun(task, left))
        assert seen.goal == whole.goal and len(seen.prepared) == filled
        assert sum(' = "' in line for line in seen.text.splitlines()) == filled
    submit = next(line for line in seen.text.splitlines() if line.startswith("button"))
    result = await session.step(submit.replace("button", "click").split("]")[0] + "]")
    assert result.terminated and result.reward == 1.0
    plan = Task(env="miniwob", family="login-user-popup", seed=1)
    assert len((await warm.session(session, begun(plan, 1)).reset(begun(plan, 1))).prepared) >= 2
    await pool.release(session, healthy=True)
    await pool.close()


async def test_rollouts_that_begin_together_share_what_one_of_their_sessions_played():
    warm, sessions = starts(), [Counted() for _ in range(3)]
    tasks = (warm.session(env, begun(LOCK, 1)).reset(begun(LOCK, 1)) for env in sessions)
    assert [len(seen.prepared) for seen in await asyncio.gather(*tasks)] == [4, 4, 4]
    assert sorted(env.resets for env in sessions) == [1, 1, 2]


@pytest.mark.parametrize(("name", "form"), [("browsergym", "click('{}')"), ("environment", "click [{}]")])
async def test_the_expert_s_actions_are_shown_in_the_format_of_the_policy(name: str, form: str):
    tokenizer: Any = make_tokenizer()
    session = starts().session(LocksEnv(), begun(LOCK, 4))
    formatted = FormattedEnv(session, build(config.ActionFormat(name=name)), Renderer(tokenizer))
    (prepared,) = (await formatted.reset(begun(LOCK, 4))).prepared
    button = solution(LOCK)[0].removeprefix("click [").removesuffix("]")
    assert prepared.canonical == form.format(button)
