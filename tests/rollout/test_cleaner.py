"""CLEANER: a repaired action is recorded as if it had been right at once, and its log-probs are not used."""

from collections.abc import Sequence
from typing import Any

import pytest
from scripted_engine import ScriptedEngine

from quartet import config
from quartet.actions.taken import taken_action
from quartet.env.environment.locks import LocksEnv, solution
from quartet.errors import ConfigError
from quartet.ledger.soundness import find_flaw
from quartet.policy.load import LoadedPolicy
from quartet.policy.make import make_policy
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.train.packing.branches import RECOMPUTED, pack_batch
from quartet.types import Batch, Group, GroupMember, Sampling, StepResult, Task, Trajectory

TASK = Task(env="locks", family="chain", seed=0)
RIGHT = solution(TASK)


class ThinkingLocks(LocksEnv):
    """Locks that ignore the text before an action."""

    async def step(self, action: str) -> StepResult:
        action = action[action.index("click") :]
        result = await super().step(action)
        error = result.observation.error
        return StepResult(
            observation=result.observation,
            reward=result.reward,
            terminated=result.terminated,
            actions=[taken_action(action, error)],
        )


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LoadedPolicy:
    texts = ["Open hall.\nheading jammed\ndid click [2]\nerror no element [9]", "click [1]", "so now: click [2]"]
    return make_policy(texts, tmp_path_factory.mktemp("cleaner") / "policy", hidden_size=16, num_layers=1)


async def play(
    policy: LoadedPolicy, responses: Sequence[str], *, history: str = "all", env: type[LocksEnv] = LocksEnv, **own: Any
) -> Trajectory:
    tokenizer: Any = policy.tokenizer
    engine = ScriptedEngine(tokenizer, lambda request, index: responses[index])
    model = ModelClient(engine, Renderer(tokenizer), sampling=Sampling(), conversation="w/1.1")
    loop = build(config.Loop.model_validate({"name": "cleaner"} | own), build(config.History(name=history)))
    limits = Limits(max_turns=len(responses), max_tokens=32, timeout_seconds=30.0)
    (trajectory,) = await loop.run(TASK, env(), {"main": model}, limits)
    assert find_flaw(trajectory) is None
    return trajectory


def trained(trajectory: Trajectory) -> list[tuple[list[int], list[int]]]:
    return [(call.trained_prompt_ids, call.response_ids) for call in trajectory.calls]


@pytest.mark.parametrize("history", ["all", "latest"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_repaired_press_is_recorded_as_if_it_had_been_right_at_once(
    policy: LoadedPolicy, history: str, place: int
):
    clean = await play(policy, RIGHT, history=history)
    tried = [*RIGHT[:place], "click [9]", "open", *RIGHT[place:]]
    repaired = await play(policy, tried, history=history)
    assert trained(repaired) == trained(clean)
    assert [bool(call.train_prompt_ids) for call in repaired.calls] == [number == place for number in range(3)]
    assert [turn.observation for turn in repaired.turns] == [turn.observation for turn in clean.turns]
    assert [turn.response for turn in repaired.turns] == RIGHT
    assert repaired.success and "error" in policy.tokenizer.decode(repaired.calls[place].prompt_ids)


async def test_only_the_log_probs_of_the_repaired_press_are_recomputed(policy: LoadedPolicy):
    repaired = await play(policy, [RIGHT[0], "click [9]", *RIGHT[1:]])
    group = Group(group_id=1, task=TASK, members=[GroupMember(rollout_id=1, trajectory=repaired)])
    packed = pack_batch(Batch(batch_id=1, attempt=1, train_step=1, start_version=0, groups=[group]), max_lag=1)
    (branch,) = packed.branches
    marks = [(branch.rollout_logprobs_L[branch.turns_L == turn] == RECOMPUTED).all() for turn in range(3)]
    assert marks == [False, True, False]


async def test_a_failure_without_a_repair_stays(policy: LoadedPolicy):
    failed = await play(policy, [RIGHT[0], "click [9]"])
    assert [turn.error for turn in failed.turns] == ["", "no element [9]"]
    assert not any(call.train_prompt_ids for call in failed.calls)


async def test_after_too_many_failures_nothing_is_rolled_back_any_more(policy: LoadedPolicy):
    stuck = await play(policy, ["click [9]", "click [8]", RIGHT[0], "click [9]", *RIGHT[1:]], max_retries=1)
    assert [bool(turn.error) for turn in stuck.turns] == [True, True, False, True, False, False]


@pytest.mark.parametrize(("similarity", "kept"), [(0.5, "so: "), (1.0, "now: ")])
async def test_a_similar_action_keeps_the_text_before_the_failed_one(
    policy: LoadedPolicy, similarity: float, kept: str
):
    """The actions differ in one of nine characters: their similarity is 8 / 9."""
    responses = ["so: click [9]", f"now: {RIGHT[0]}", *RIGHT[1:]]
    repaired = await play(policy, responses, env=ThinkingLocks, mark="click", similarity=similarity)
    assert repaired.turns[0].response == kept + RIGHT[0]
    assert policy.tokenizer.decode(repaired.calls[0].response_ids, skip_special_tokens=True) == kept + RIGHT[0]


@pytest.mark.parametrize("rollout", [{"history": "summary"}, {"brancher": "entropy"}])
def test_a_recipe_whose_calls_cannot_be_rolled_back_is_refused(rollout: dict[str, str]):
    data = {"name": "x", "model": {"path": "/m"}, "env": {"name": "locks"}, "rollout": {"loop": "cleaner"} | rollout}
    with pytest.raises(ConfigError, match="loop 'cleaner'"):
        parse_recipe(data, "test")
