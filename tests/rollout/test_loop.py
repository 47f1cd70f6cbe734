"""The agent loops against the bandit: exact prompts, calls and endings."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet import config
from quartet.config import Loop
from quartet.env import make_pool
from quartet.env.base import Env
from quartet.env.environment.bandit import BanditEnv
from quartet.env.environment.locks import solution
from quartet.errors import ConfigError, EngineError, EnvError, PromptTooLongError, RewardError
from quartet.policy.chat import Chat, exchanges
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import actions_of
from quartet.rollout.loop.base import Limits
from quartet.types import (
    FinishReason,
    Function,
    Keyboard,
    Message,
    Observation,
    Outcome,
    Sampling,
    Status,
    StepResult,
    TakenAction,
    Task,
    Text,
    Tool,
    ToolCall,
    Trajectory,
)

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
    (trajectory,) = await build(Loop(name=loop)).run(task, env, {"main": model}, limits)
    return trajectory, engine


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_a_rollout_records_what_was_seen_said_and_done(loop):
    trajectory, engine = await play(loop, ["left it is\nCLICK  left [1]", "click right [2]"], turns=2)
    assert (trajectory.status, trajectory.rewards, trajectory.success) == (Status.COMPLETED, {"task": 0.5}, False)
    assert [turn.response for turn in trajectory.turns] == ["left it is\nCLICK  left [1]", "click right [2]"]
    assert actions_of(trajectory.turns) == ["click left [1]", "click right [2]"]
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
    (taken,) = first.actions
    assert (taken.canonical, taken.outcome) == ("", Outcome.PARSE_ERROR)
    assert (first.error, first.reward) == ("not an action", 0.0)
    assert trajectory.turns[1].observation.error == "not an action"
    assert (trajectory.status, trajectory.success) == (Status.COMPLETED, True)


async def test_the_end_is_recorded():
    """What the last action led to, whether the episode ended or was cut off; nothing that a turn has already."""
    whole, _ = await play("latest", ["click left [1]", "hm", "infeasible"], turns=4)
    assert whole.final_observation == Observation(goal="Pull an arm.", text=whole.turns[0].observation.text)
    assert [turn.actions[0].outcome for turn in whole.turns] == ["done", "parse_error", "infeasible"]
    assert (whole.status, whole.reward) == (Status.COMPLETED, 0.25)
    cut_off, _ = await play("latest", ["click left [1]"] * 3 + ["hm"], turns=9)
    assert cut_off.status == Status.TRUNCATED_TURNS
    assert cut_off.final_observation is not None and cut_off.final_observation.error == "not an action"


class Shop(BanditEnv):
    """Takes several actions in one response, and says itself what became of each and what it was worth."""

    async def step(self, action: str) -> StepResult:
        if action == "sleep":
            await asyncio.sleep(60)
        bought = TakenAction(action=ToolCall(name="buy", arguments={"what": "milk"}), canonical="buy milk")
        left = TakenAction(action=Text(text="bye"), canonical="bye")
        late = TakenAction(
            action=Keyboard(keys=["Enter"]), canonical="key Enter", outcome=Outcome.ENDED, error="the shop was left"
        )
        seen = Observation(goal="Shop.", text="A street.")
        return StepResult(
            observation=seen,
            reward=0.75,
            terminated=True,
            actions=[bought, left, late],
            rewards={"goods": 1.0, "cost": -0.25},
        )


async def test_a_response_may_hold_several_actions_and_a_reward_several_parts():
    whole, _ = await play("latest", ["buy milk; bye; press Enter"], env=Shop(Counter()))
    (turn,) = whole.turns
    assert [action.outcome for action in turn.actions] == ["done", "done", "ended"]
    assert actions_of(whole.turns) == ["buy milk", "bye"]
    assert turn.rewards == whole.rewards == {"goods": 1.0, "cost": -0.25}
    assert turn.reward == whole.reward == 0.75
    assert (turn.error, whole.num_valid_actions) == ("the shop was left", 0)


async def test_a_turn_in_which_the_time_ends_is_recorded_as_such():
    limits = replace(LIMITS, timeout_seconds=0.2)
    whole, _ = await play("latest", ["sleep"], limits=limits, env=Shop(Counter()))
    assert whole.status == Status.TRUNCATED_TIME
    (turn,) = whole.turns
    assert [action.outcome for action in turn.actions] == [Outcome.TIMEOUT]
    assert whole.final_observation is None, "no module saw what the action led to"


class Kitchen:
    """Speaks in messages: a system prompt, results of a tool, and at times a text beside them."""

    async def reset(self, task: Task) -> Observation:
        oven = Tool(function=Function(name="oven", description="Heat it."))
        asked = [Message("system", "You are a cook."), Message("user", "Bake.")]
        return Observation(goal="", text="", messages=asked, tools=[oven])

    async def step(self, action: str) -> StepResult:
        taken = TakenAction(action=ToolCall(name="oven"), canonical="oven()")
        seen = Observation(goal="", text="", messages=[Message("tool", f"{action}: hot", name="oven")])
        return StepResult(observation=seen, reward=0.5, terminated=action == "serve", actions=[taken])

    async def close(self) -> None: ...


MESSAGES = (
    "{% if tools %}{{ tools[0]['function']['name'] }}{% endif %}"
    "{% for m in messages %}<|user|>{{ m['role'] }}:{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant:{% endif %}"
)
ASKED = "oven<|user|>system:You are a cook.<|end|><|user|>user:Bake.<|end|><|user|>assistant:"


@pytest.mark.parametrize(
    ("loop", "second"),
    [
        ("append", ASKED + "oven()<|end|><|user|>tool:oven(): hot<|end|><|user|>assistant:"),
        (
            "latest",
            ASKED.replace("<|user|>assistant:", "<|user|>tool:oven(): hot<|end|><|user|>user:did oven()<|end|>")
            + "<|user|>assistant:",
        ),
    ],
)
async def test_an_environment_may_speak_in_messages_and_offer_tools(loop, second, tmp_path):
    tokenizer = make_tokenizer(MESSAGES)
    renderer, script = Renderer(tokenizer), ["oven()", "serve"]
    engine = ScriptedEngine(tokenizer, lambda request, index: script[index])
    model = ModelClient(engine, renderer, sampling=Sampling(), conversation="c")
    task = Task(env="kitchen", family="bread", seed=0)
    part = build(Loop(name=loop))
    (whole,) = await part.run(task, Kitchen(), {"main": model}, LIMITS)
    assert [engine.prompt(index) for index in range(2)] == [ASKED, second]
    chats = [Chat(messages, part.tools(whole.turns, number)) for number, messages in enumerate(part.chats(whole.turns))]
    rendered = [one.prompt_ids for chat in chats for one in exchanges(chat, renderer)]
    assert rendered == [call.prompt_ids for call in whole.calls], "a chat trains what the rollout read"


async def test_a_summary_follows_the_task_and_the_tools_of_messages():
    tokenizer = make_tokenizer(MESSAGES)
    script = ["oven()", "It is hot.", "serve"]
    engine = ScriptedEngine(tokenizer, lambda request, index: script[index])
    model = ModelClient(engine, Renderer(tokenizer), sampling=Sampling(), conversation="c")
    part = build(Loop(name="screens"), build(config.History(name="summary", every=1, request="Sum up.")))
    await part.run(Task(env="kitchen", family="bread", seed=0), Kitchen(), {"main": model}, LIMITS)
    begun = ASKED.replace("Bake.", "Bake.\nSum up.")
    assert engine.prompt(2) == f"{begun}It is hot.<|end|><|user|>tool:oven(): hot<|end|><|user|>assistant:"


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
    (trajectory,) = await build(Loop()).run(task, env, {"main": model}, LIMITS)
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
    (trajectory,) = await build(Loop()).run(task, env, {"main": model}, limits)
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


def test_an_unknown_loop_suggests_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'latest'"):
        build(Loop(name="lattest"))


class Game:
    """Ends with its second step, by what the test says."""

    def __init__(self, **end) -> None:
        self._end, self._steps = end, 0

    async def reset(self, task: Task) -> Observation:
        return Observation(goal="Play.", text="")

    async def step(self, action: str) -> StepResult:
        self._steps += 1
        assert self._steps <= 2, "a game that is over is not played on"
        end = self._end if self._steps == 2 else {}
        return StepResult(observation=Observation(goal="Play.", text=""), **{"reward": 0.0, "terminated": False} | end)

    async def close(self) -> None: ...


async def play_game(**end) -> list[Trajectory]:
    engine = ScriptedEngine(TOKENIZER, lambda request, index: "done")
    models = {
        name: ModelClient(engine, RENDERER, sampling=Sampling(), conversation=name, policy=name) for name in ("a", "b")
    }
    task = Task(env="game", family="x", seed=0)
    return await build(Loop(name="alternate")).run(task, Game(**end), models, LIMITS)


async def test_a_game_that_the_environment_cuts_off_is_over():
    parts = await play_game(truncated=True, info={"rewards": [0.25, 1]})
    assert [(one.part, one.status, one.reward, one.success) for one in parts] == [
        ("a", Status.TRUNCATED_TURNS, 0.25, False),
        ("b", Status.TRUNCATED_TURNS, 1.0, True),
    ]


@pytest.mark.parametrize("info", [{}, {"rewards": 1.0}, {"rewards": [1.0]}], ids=["none", "one_number", "too_few"])
async def test_a_game_without_a_reward_for_each_player_says_what_to_do(info):
    with pytest.raises(RewardError, match=r"(?s)a reward for each of its 2 players.*let the environment return them"):
        await play_game(terminated=True, info=info)
