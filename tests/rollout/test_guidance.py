"""Guidance: prompts contain it, the prompts that are trained do not, and its log-probs are not used."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scripted_engine import ScriptedEngine

from quartet import config
from quartet.env.environment.locks import JAMMED, LocksEnv, code, row, solution
from quartet.errors import ConfigError
from quartet.ledger.soundness import find_flaw
from quartet.policy.load import LoadedPolicy
from quartet.policy.make import make_policy
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.guidance.base import Guidance
from quartet.rollout.guidance.examples import ExamplesGuidance, example, examples
from quartet.rollout.guided_env import GuidedEnv
from quartet.rollout.loop.base import Limits
from quartet.train.packing.branches import RECOMPUTED, pack_batch
from quartet.types import Batch, Group, GroupMember, Observation, Sampling, Task, Trajectory

TASK = Task(env="locks", family="chain", seed=0)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LoadedPolicy:
    texts = ["Open hall. Hint: click [1]\nheading jammed\ndid click [2]\nerror no", "click [1]"]
    return make_policy(texts, tmp_path_factory.mktemp("guided") / "policy", hidden_size=16, num_layers=1)


def guidance(env: str = "locks", **settings: Any) -> Guidance:
    data = {"name": "guided", "model": {"path": "/m"}, "env": {"name": env}, "rollout": {"guidance": settings}}
    recipe = parse_recipe(data, "test")
    return build(recipe.rollout.guidance, recipe)


async def play(policy: LoadedPolicy, loop: str, advice: Guidance | None, partial: Any = ()) -> Trajectory:
    """Play a lock with the right presses, so that runs with and without advice differ in their prompts only."""
    tokenizer: Any = policy.tokenizer
    engine = ScriptedEngine(tokenizer, lambda request, _: solution(TASK)[int(request.request_id.split("/")[-1])])
    model = ModelClient(engine, Renderer(tokenizer), sampling=Sampling(), conversation="w/1.1", partial=partial)
    env = GuidedEnv(LocksEnv(), advice) if advice else LocksEnv()
    limits = Limits(max_turns=8, max_tokens=8, timeout_seconds=30.0)
    (trajectory,) = await build(config.Loop(name=loop), build(config.History())).run(TASK, env, {"main": model}, limits)
    assert trajectory.success and find_flaw(trajectory) is None
    return trajectory


@pytest.mark.parametrize("loop", ["latest", "append"])
async def test_prompts_contain_advice_and_trained_prompts_are_those_without_it(policy: LoadedPolicy, loop: str):
    bare = await play(policy, loop, None)
    guided = await play(policy, loop, guidance(name="expert", template="Hint: {action}"))
    for number, (call, other) in enumerate(zip(guided.calls, bare.calls, strict=True)):
        assert call.trained_prompt_ids == other.prompt_ids != call.prompt_ids
        assert other.train_prompt_ids == []
        text = policy.tokenizer.decode(call.prompt_ids)
        assert text.count("Hint: ") == (number + 1 if loop == "append" else 1)
        assert f"Hint: {solution(TASK)[number]}\n" in text
    assert [turn.observation.guidance for turn in guided.turns] == [f"Hint: {press}" for press in solution(TASK)]


def test_an_expert_of_fixed_actions_has_no_advice_after_its_last_one():
    rollout = {"loop": "append", "guidance": {"name": "expert"}}
    data = {"name": "guided", "model": {"path": "/m"}, "env": {"name": "tools"}, "rollout": rollout}
    recipe = parse_recipe(data, "test")
    advise = build(recipe.rollout.guidance, recipe).guide(Task(env="tools", family="calculator_1", seed=0))
    texts = [advise(Observation(goal="", text="")) for _ in range(3)]
    assert [bool(text) for text in texts] == [True, True, False]


async def test_advice_in_one_turn_only_is_removed_from_later_prompts_too(policy: LoadedPolicy):
    class First(Guidance):
        """Advice at the first sign."""

        def guide(self, task: Task):
            return lambda page: "Hint: click [1]" if page.text.endswith(row(TASK)[0]) else ""

    part: Any = First(None, None)  # type: ignore[arg-type]
    bare = await play(policy, "append", None)
    guided = await play(policy, "append", part)
    assert [bool(call.train_prompt_ids) for call in guided.calls] == [True] * 3
    assert [call.trained_prompt_ids for call in guided.calls] == [call.prompt_ids for call in bare.calls]
    guided = await play(policy, "latest", part)
    assert [bool(call.train_prompt_ids) for call in guided.calls] == [True, False, False]


async def test_a_recalled_guided_rollout_keeps_the_prompts_that_are_trained(policy: LoadedPolicy):
    advice = guidance(name="expert")
    whole = await play(policy, "append", advice)
    again = await play(policy, "append", advice, partial=whole.calls[:2])
    assert [call.trained_prompt_ids for call in again.calls] == [call.trained_prompt_ids for call in whole.calls]


async def test_log_probs_that_were_sampled_with_advice_are_recomputed(policy: LoadedPolicy):
    bare = await play(policy, "latest", None)
    guided = await play(policy, "latest", guidance(name="expert"))
    members = [GroupMember(rollout_id=number, trajectory=one) for number, one in enumerate((bare, guided))]
    group = Group(group_id=1, task=TASK, members=members)
    packed = pack_batch(Batch(batch_id=1, attempt=1, train_step=1, start_version=0, groups=[group]), max_lag=1)
    for branch in packed.branches:
        recorded = branch.rollout_logprobs_L[branch.trained_L]
        assert (recorded == RECOMPUTED).all() if branch.trajectory_index else np.isfinite(recorded).all()
    mine, other = (next(one for one in packed.branches if one.trajectory_index == index) for index in (0, 1))
    assert mine.ids_L.tolist() == other.ids_L.tolist(), "both are trained as the same sequence"


def test_a_text_belongs_to_a_task_or_to_its_family(tmp_path):
    file = tmp_path / "texts.json"
    file.write_text(json.dumps({"chain": "from the file", TASK.key: "of the task", "drum": "roll"}))
    page = Observation(goal="", text="")
    advice = guidance(name="text", file=str(file), texts={"chain": "of the family"})
    tasks = [TASK, replace(TASK, seed=1), replace(TASK, family="drum"), replace(TASK, family="x")]
    assert [advice.guide(task)(page) for task in tasks] == ["of the task", "of the family", "roll", ""]
    file.write_text("[]")
    with pytest.raises(ConfigError, match="cannot be read"):
        guidance(name="text", file=str(file))
    with pytest.raises(ConfigError, match="has no texts"):
        guidance(name="text")


def test_the_expert_is_one_of_the_environment_or_a_function():
    page = Observation(goal="", text=f"heading {row(TASK)[1]}")
    right = f"click [{code('chain')[row(TASK)[1]]}]"
    assert guidance(name="expert").guide(TASK)(page) == right
    assert guidance(name="expert").guide(TASK)(replace(page, text=f"heading {JAMMED}")) == "click [1]"
    mine = guidance(name="expert", function="quartet.env.miniwob.experts:expert_action").guide
    page = Observation(goal='Click on the "ok" button.', text="button ok [3]")
    assert mine(Task(env="miniwob", family="click-button", seed=0))(page) == "click ok [3]"
    lost = mine(Task(env="miniwob", family="click-button", seed=0))(replace(page, text=""))
    assert lost == "", "the expert raises an error on a page that it does not know"
    with pytest.raises(ConfigError, match="contains neither"):
        guidance(name="expert", template="hint")


def test_a_scripted_expert_of_the_desktop_gives_no_advice_off_its_way():
    advise = guidance(env="desktop", name="expert").guide(Task(env="desktop", family="word_wrap", seed=0))
    assert advise(Observation(goal="", text="menu Document [4]")) == "click Document [4]"
    assert advise(Observation(goal="", text="menu Document [4]")) == "", "the policy has closed the menu"


@pytest.mark.parametrize(
    ("action", "advice"),
    [
        ("click Exit now [12]", 'click "Exit now"'),
        ('type First name [3] "{action}"', 'type "First name" "{action}"'),
        ('type Search [3] "see item [4]"', 'type "Search" "see item [4]"'),
        ("drag red box [4] to blue box [5]", 'drag "red box" to "blue box"'),
        ("click (20, 30)", "click (20, 30)"),
        ("key Tab", "key Tab"),
    ],
)
def test_advice_can_name_elements_by_their_labels(action, advice, monkeypatch):
    part = guidance(name="expert", template="{quoted} or {action}")
    monkeypatch.setattr(part, "expert", lambda _: lambda _: action)
    assert part.guide(TASK)(Observation(goal="", text="")) == f"{advice} or {action}"


async def test_examples_are_the_solved_tasks_in_the_form_of_pages(policy: LoadedPolicy):
    solved = await play(policy, "latest", None)
    lines = [f"heading {sign}\ndid {press}" for sign, press in zip(row(TASK), solution(TASK), strict=True)]
    shown = "\n".join([f"solved {solved.turns[0].observation.goal}", *lines])
    assert example(solved) == shown
    assert examples([solved, solved], 2 * len(shown) + 1) == f"{shown}\n{shown}"
    assert examples([solved, solved], 2 * len(shown)) == shown and examples([solved], 9) == ""
    nothing: Any = None
    part = ExamplesGuidance(ExamplesGuidance.Settings(), nothing, lambda task, count: [solved] * count)
    assert part.guide(replace(TASK, seed=1))(Observation(goal="", text="")) == f"{shown}\n{shown}"
