"""The agent loops against the bandit: exact prompts, calls and endings."""

import asyncio
from itertools import pairwise

import pytest
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet import config
from quartet.config import Loop
from quartet.env import make_pool
from quartet.env.base import Env
from quartet.env.environment.locks import solution
from quartet.errors import ConfigError, EngineError, EnvError, PromptTooLongError
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import canonical_action
from quartet.rollout.loop.base import Limits
from quartet.rollout.renderer import Renderer
from quartet.types import FinishReason, Sampling, Status, StepResult, Task, Trajectory

TOKENIZER = make_tokenizer()
RENDERER = Renderer(TOKENIZER)
PAGE = "Pull an arm.\nbutton left [1]\nbutton right [2]"
LIMITS = Limits(max_turns=4, max_tokens=40, timeout_seconds=30.0)


async def play(
    loop: str, script, *, limits=LIMITS, env: Env | None = None, **params
) -> tuple[Trajectory, ScriptedEngine]:
    """One rollout; `script` is a list of responses or a function of (request, index)."""
    engine = ScriptedEngine(TOKENIZER, script if callable(script) else lambda request, index: script[index])
    model = ModelClient(engine, RENDERER, sampling=Sampling(seed=5), conversation="w/1.1")
    env = env or await make_pool(config.Env(name="bandit")).acquire()
    task = Task(env="bandit", family="fixed", seed=0, params=params)
    return await build(Loop(name=loop)).run(task, env, model, limits), engine


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_a_rollout_records_what_was_seen_said_and_done(loop):
    trajectory, engine = await play(loop, ["left it is\nCLICK  left [1]", "click right [2]"], turns=2)
    assert (trajectory.status, trajectory.rewards, trajectory.success) == (Status.COMPLETED, {"task": 0.5}, False)
    assert [turn.response for turn in trajectory.turns] == ["left it is\nCLICK  left [1]", "click right [2]"]
    assert [turn.action for turn in trajectory.turns] == ["click left [1]", "click right [2]"]
    assert [turn.call_index for turn in trajectory.turns] == [0, 1]
    assert [turn.reward for turn in trajectory.turns] == [0.0, 0.5]
    assert [call.prompt_ids for call in trajectory.calls] == [request.prompt_ids for request in engine.requests]
    assert [call.response.versions[0] for call in trajectory.calls] == [7, 7]
    assert trajectory.wall_seconds > 0


async def test_append_keeps_the_whole_conversation_as_one_branch():
    trajectory, engine = await play("append", ["click left [1]"] * 3, turns=3)
    assert (trajectory.reward, trajectory.success) == (1.0, True)
    for before, after in pairwise(trajectory.calls):
        so_far = before.prompt_ids + before.response_ids
        assert after.prompt_ids[: len(so_far)] == so_far
    turn = f"<|user|>{PAGE}<|end|><|assistant|>"
    said = "click left [1]<|end|>"
    assert engine.prompt(2) == turn + said + turn + said + turn


async def test_latest_shows_the_newest_page_and_what_was_done():
    _, engine = await play("latest", ["click left [1]", "what?", "click left [7]", "click right [2]"], turns=3)
    goal, page = PAGE.split("\n", 1)
    assert [engine.prompt(index) for index in range(4)] == [
        f"<|user|>{goal}\n{page}{shown}<|end|><|assistant|>"
        for shown in (
            "",
            "\ndid click left [1]",
            "\ndid click left [1]\nerror not an action",
            "\ndid click left [1]\ndid click left [7]\nerror no element [7]",
        )
    ]


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_a_malformed_action_is_a_turn_with_an_error(loop):
    trajectory, _ = await play(loop, ["hm", "click left [1]"])
    first = trajectory.turns[0]
    assert (first.action, first.error, first.reward) == ("", "not an action", 0.0)
    assert trajectory.turns[1].observation.error == "not an action"
    assert (trajectory.status, trajectory.success) == (Status.COMPLETED, True)


async def test_done_ends_the_episode_with_the_reward_as_it_is():
    trajectory, _ = await play("latest", ["click left [1]", "done"], turns=4)
    assert (trajectory.status, trajectory.reward, len(trajectory.turns)) == (Status.COMPLETED, 0.25, 2)


async def test_the_word_done_ends_no_episode_of_an_environment_that_does_not_know_it():
    task = Task(env="locks", family="latch", seed=0)
    script = ["done", *solution(task)]
    model = ModelClient(
        ScriptedEngine(TOKENIZER, lambda request, index: script[index]), RENDERER, sampling=Sampling(), conversation="c"
    )
    env = await make_pool(config.Env(name="locks")).acquire()
    trajectory = await build(Loop()).run(task, env, model, LIMITS)
    assert (trajectory.status, trajectory.success) == (Status.COMPLETED, True)
    assert [turn.error for turn in trajectory.turns] == ["only click works here", *[""] * len(solution(task))]


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_too_many_turns(loop):
    trajectory, _ = await play(loop, ["click left [1]"] * 9, turns=9)
    assert (trajectory.status, len(trajectory.turns), trajectory.reward) == (Status.TRUNCATED_TURNS, 4, 0.0)


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_a_conversation_that_outgrows_the_context(loop):
    script = ["click left [1]", PromptTooLongError("101 tokens, context of 100")]
    trajectory, _ = await play(loop, script, turns=9)
    assert (trajectory.status, len(trajectory.turns), len(trajectory.calls)) == (Status.TRUNCATED_TOKENS, 1, 1)


async def test_a_response_cut_off_is_kept_and_ended_by_the_next_prompt():
    def script(request, index):
        return engine_result("click left", ended=False) if index == 0 else "click left [1]"

    def engine_result(text, ended):
        return ScriptedEngine(TOKENIZER, script).result(text, ended=ended)

    trajectory, engine = await play("append", script)
    assert trajectory.calls[0].finish_reason is FinishReason.LENGTH
    assert trajectory.calls[0].response_ids[-1] != TOKENIZER.eos_token_id
    assert f"<|assistant|>click left<|end|><|user|>{PAGE}\nerror" in engine.prompt(1)


async def test_an_episode_out_of_time_keeps_what_was_done():
    class Sleepy(ScriptedEngine):
        async def generate(self, request):
            if self.requests:
                await asyncio.Event().wait()
            return await super().generate(request)

    engine = Sleepy(TOKENIZER, lambda *_: "click left [1]")
    model = ModelClient(engine, RENDERER, sampling=Sampling(), conversation="c")
    env = await make_pool(config.Env(name="bandit")).acquire()
    task = Task(env="bandit", family="fixed", seed=0, params={"turns": 3})
    limits = Limits(max_turns=4, max_tokens=40, timeout_seconds=2.0)
    trajectory = await build(Loop()).run(task, env, model, limits)
    assert (trajectory.status, len(trajectory.turns)) == (Status.TRUNCATED_TIME, 1)


async def test_infrastructure_failures_are_raised_with_the_calls_kept():
    with pytest.raises(EnvError):
        await play("latest", [], fail_rate=1.0)
    with pytest.raises(EngineError):
        await play("latest", [EngineError("no engine")])
    with pytest.raises(TimeoutError):  # not ours: a bug of an adapter must not look like an episode out of time
        await play("latest", [TimeoutError()])


async def test_an_environment_may_cut_the_episode_off_and_name_success_itself():
    class Strict:
        """Ends every episode after one step, by its own limit, and calls a reward of 0.3 a success."""

        async def reset(self, task):
            return await (await make_pool(config.Env(name="bandit")).acquire()).reset(task)

        async def step(self, action):
            observation = await self.reset(Task(env="bandit", family="fixed", seed=0))
            return StepResult(
                observation=observation, reward=0.3, terminated=False, truncated=True, info={"success": True}
            )

        async def close(self): ...

    trajectory, _ = await play("latest", ["click left [1]"] * 4, env=Strict())
    assert (trajectory.status, trajectory.success, trajectory.reward) == (Status.TRUNCATED_TURNS, True, 0.3)


def test_canonical_actions():
    assert canonical_action("I think\nClick  next  [23]") == "click next [23]"
    assert canonical_action("nothing of the kind") == ""


def test_an_unknown_loop_suggests_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'latest'"):
        build(Loop(name="lattest"))
