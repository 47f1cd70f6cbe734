"""The viewer of a run with several policies: each has its numbers, and each part of a rollout its page."""

import pytest
from msgspec.structs import replace

from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe, to_toml
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    RolloutLease,
    RolloutPlan,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)
from quartet.web.app import build_app
from tests.web.conftest import ask

RECIPE = {
    "name": "match",
    "model": {"path": "unused"},
    "policies": {"even": {}, "odd": {}, "judge": {"trained": False}},
    "env": {"name": "pennies"},
    "rollout": {"loop": "alternate"},
}


def part(lease: RolloutLease, name: str, reward: float) -> Trajectory:
    tokens = TokenColumns(token_ids=[1, 2], logprobs=[-0.5, -0.5], versions=[0, 0])
    call = Call(
        key="0", policy=name, prompt_ids=[7], response=tokens, sampling=Sampling(), finish_reason=FinishReason.STOP
    )
    turn = Turn(observation=Observation(goal=f"Play {name}.", text=""), call_index=0, response=f"{name} speaks")
    return Trajectory(
        task=lease.task,
        status=Status.COMPLETED,
        calls=[call],
        turns=[turn],
        rewards={"game": reward},
        success=reward == 1,
        policy=name,
        role=f"the {name} player",
        part=name,
    )


@pytest.fixture
async def client(tmp_path):
    run_dir = tmp_path / "match"
    ledger = Ledger.create(run_dir, trained=("even", "odd"), frozen=("judge",))
    (run_dir / "config.toml").write_text(to_toml(parse_recipe(RECIPE, "test")))
    for name in (*ledger.trained, *ledger.frozen):
        ledger.of(name).policies.register_initial(f"start/{name}")
    ledger.groups.admit(RolloutPlan(task=Task(env="pennies", family="pennies", seed=1), num_rollouts=1, max_turns=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, part(lease, "even", 1.0), 3, [part(lease, "odd", 0.0), part(lease, "judge", 0.0)])
    ledger.groups.admit(RolloutPlan(task=Task(env="pennies", family="pennies", seed=2), num_rollouts=1, max_turns=1))
    (late,) = ledger.rollouts.claim("w", 1, 60)
    ledger.groups.close(late.group_id)
    ledger.trajectories.append(late, part(late, "even", 1.0), 3, [part(late, "odd", 0.0), part(late, "judge", 0.0)])
    ledger.groups.admit(RolloutPlan(task=Task(env="pennies", family="pennies", seed=3), num_rollouts=1, max_turns=1))
    (mixed,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(mixed, replace(part(mixed, "even", 1.0), part=""), 3, [part(mixed, "judge", 0.0)])
    judged_id = ledger.groups.admit(
        RolloutPlan(task=Task(env="pennies", family="pennies", seed=4), num_rollouts=2, max_turns=1)
    )
    for judged in ledger.rollouts.claim("w", 2, 60):
        won = float(judged.index)
        ledger.trajectories.append(judged, part(judged, "even", won), 3, [part(judged, "odd", 0.0)])
    ledger.groups.close(judged_id)
    ledger.groups.make_trainable(judged_id, [4, 5], 2)
    ledger.close()
    async with ask(build_app([run_dir])) as client:
        yield client


async def test_the_run_shows_every_policy(client):
    page = (await client.get("/runs/match/now")).text
    for name in ("even", "odd", "judge"):
        assert f"<td>{name}</td>" in page
    assert "frozen" in page


async def test_tasks_show_the_success_of_the_first_policy(client):
    page = (await client.get("/runs/match/family?name=pennies")).text
    assert "<dt>training success, newest 16 groups, even</dt><dd>50" in page


@pytest.mark.parametrize("name", ["even", "odd", "judge"])
async def test_each_part_of_a_rollout_has_its_page(client, name):
    page = (await client.get(f"/runs/match/rollouts/1?part={name}")).text
    assert all(f'href="?part={other}"' in page for other in ("even", "odd", "judge"))
    shown = [other for other in ("even", "odd", "judge") if f"Play {other}." in page]
    assert shown == [name] and f"the {name} player" in page
    assert f"Play {name}." in (await client.get(f"/runs/match/rollouts/1/turns/1?part={name}")).text


async def test_the_list_names_the_policy_and_links_to_its_part(client):
    page = (await client.get("/runs/match/rollouts")).text
    assert all(f"rollouts/1?part={name}" in page and f", {name}" in page for name in ("even", "odd", "judge"))


@pytest.mark.parametrize("name", ["even", "odd", "judge"])
async def test_each_part_of_a_rollout_whose_group_had_closed_has_its_page(client, name):
    listed = (await client.get("/runs/match/rollouts")).text
    assert f"rollouts/2?attempt=1&amp;part={name}" in listed
    for place in ("", "/turns/1"):
        page = (await client.get(f"/runs/match/rollouts/2{place}?attempt=1&part={name}")).text
        assert [other for other in ("even", "odd", "judge") if f"Play {other}." in page] == [name]
    assert f"rollouts/2?attempt=1&amp;part={name}" in page, "the page of a turn leads back to its part"


@pytest.mark.parametrize(("part", "name"), [("", "even"), ("judge", "judge")])
async def test_a_part_may_have_no_name(client, part, name):
    page = (await client.get(f"/runs/match/rollouts/3?part={part}")).text
    assert [other for other in ("even", "judge") if f"Play {other}." in page] == [name]


async def test_the_groups_of_a_family_name_their_policy(client):
    page = (await client.get("/runs/match/family?name=pennies")).text
    assert "<th>policy</th>" in page and "<td>even</td>" in page
