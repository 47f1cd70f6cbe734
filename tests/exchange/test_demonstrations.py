"""Demonstrations: from a file into the pool, once; what they become; what is refused."""

import json

import numpy as np
import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from quartet.env import undemonstrated_families
from quartet.errors import ConfigError
from quartet.exchange.demonstrations import settle, store_into
from quartet.exchange.export import export
from quartet.exchange.stored import Selection, stored_trajectories
from quartet.ledger import Ledger
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.report.bias import selection_bias
from quartet.report.check import check_ledger
from quartet.report.recent import recent_rates
from quartet.report.totals import run_totals, status_counts
from quartet.rollout.episode import actions_of
from quartet.train.assign import assign
from quartet.train.credit.grpo import Grpo
from quartet.train.packing.branches import RECOMPUTED, pack_batch
from quartet.types import Purpose, ReplayRule, Task
from tests.ledger.samples import finish, manager_of, plan, recipe, trajectory

TASK = Task(env="bandit", family="fixed", seed=1)
PAGE = "Pull an arm.\nbutton left [1]\nbutton right [2]"


@pytest.fixture
def run(tmp_path, clock, url, bandit_policy):
    """The ledger of a run whose policy can be loaded."""
    ledger = Ledger.create(tmp_path / "run", clock=clock, url=url)
    ledger.policies.register_initial(str(bandit_policy))
    yield ledger
    ledger.close()


def pool_recipe(**replay):
    return recipe(replay={"name": "success_pool"} | replay, evaluation={"before_and_after": False})


def chat(*said: str, family: str = "fixed", seed: int = 1, read: str = PAGE, **fields) -> str:
    messages = [
        {"role": role, "content": text} for answer in said for role, text in (("user", read), ("assistant", answer))
    ]
    return json.dumps({"messages": messages, "family": family, "seed": seed} | fields) + "\n"


def demonstrate(run: Ledger, tmp_path, *lines: str, **replay):
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(lines))
    return store_into(run, pool_recipe(**replay), path)


def stored(run: Ledger, task: Task = TASK):
    rules = {Purpose.TRAIN: ReplayRule.STORED, Purpose.DEMONSTRATION: ReplayRule.RECOMPUTE}
    return [run.pool.load(rollout_id, rules) for rollout_id in run.pool.usable(task, 8)]


def fail(run: Ledger) -> int:
    group_id = run.groups.admit(replace(plan(), task=TASK))
    for lease in run.rollouts.claim("w", 2, 60):
        finish(run, lease, reward=0.0)
    return group_id


def judge(run: Ledger, **replay) -> None:
    run.set_value("phase", "judging")
    with manager_of(pool_recipe(**replay), run) as manager:
        manager.tick()


def test_a_chat_becomes_what_a_rollout_would_have_recorded(run, tmp_path, bandit_policy):
    said = ("click left [1]", "click right [2]")
    lines = [chat(text, turn=turn, read=f"{PAGE}{turn}") for turn, text in enumerate(said)]
    assert demonstrate(run, tmp_path, *lines).stored == 1
    (member,) = stored(run)
    tokenizer = load_tokenizer(bandit_policy)
    renderer = Renderer(tokenizer)
    for turn, call in enumerate(member.trajectory.calls):
        assert call.prompt_ids == renderer.start(f"{PAGE}{turn}")
        assert renderer.decode(call.response_ids) == said[turn]
        assert call.response_ids[-1] == renderer.stop_token_ids[0]
        assert (call.response.logprobs, call.response.versions) == ([], [])
    assert actions_of(member.trajectory.turns) == list(said)
    assert (member.trajectory.reward, member.trajectory.success, member.replay) == (1.0, True, ReplayRule.RECOMPUTE)
    assert member.trajectory.oldest_version is None


def test_a_demonstration_with_a_call_outside_its_text_is_refused(run, tmp_path):
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "click", "arguments": "{}"}}]}
    messages = [{"role": "user", "content": PAGE}, called]
    with pytest.raises(ConfigError, match=r"demos\.jsonl:2: a message has tool_calls"):
        demonstrate(run, tmp_path, chat("click left [1]"), chat("", messages=messages))


def test_a_conversation_becomes_one_growing_branch(run, tmp_path, bandit_policy):
    demonstrate(run, tmp_path, chat("click left [1]", "click right [2]"))
    (member,) = stored(run)
    first, second = member.trajectory.calls
    renderer = Renderer(load_tokenizer(bandit_policy))
    assert second.prompt_ids == renderer.extend(first.prompt_ids, first.response_ids, PAGE)


def test_it_joins_a_group_that_failed_and_is_trained_in_full(run, tmp_path):
    demonstrate(run, tmp_path, chat("click left [1]"))
    failed = fail(run)
    judge(run)
    batch = run.batches.claim("t", 1, 1, "mask", 60)
    assert batch is not None and batch.groups[0].group_id == failed
    packed = assign(batch, pack_batch(batch, max_lag=0), [Grpo(Grpo.Settings())], {})
    *_, demonstrated = packed.branches
    response = demonstrated.ids_L[demonstrated.prompt_tokens :]
    assert (demonstrated.advantages_L[demonstrated.trained_L] > 0).all() and packed.masked_tokens == 0
    assert demonstrated.num_trained_tokens == len(response)
    assert np.all(demonstrated.rollout_logprobs_L[demonstrated.trained_L] == RECOMPUTED)
    run.batches.commit(batch, "p1", {})
    totals = run_totals(run)
    assert (totals.replayed, totals.lost, totals.trained_twice) == (1, 0, 0)
    assert check_ledger(run).findings == []


@pytest.mark.parametrize("task", [{"seed": 2}, {"family": "named"}])
def test_another_task_gets_none(run, tmp_path, task):
    demonstrate(run, tmp_path, chat("click left [1]", **task))
    fail(run)
    judge(run)
    assert run_totals(run).dropped_by_reason == {"equal_rewards": 1}


def test_tasks_that_differ_in_their_parameters_alone_do_not_share_their_successes(run):
    tasks = [replace(TASK, params={"turns": turns}) for turns in (1, 2)]
    run.pool.store_demonstrations([trajectory(task, reward=1.0) for task in tasks], 8)
    assert [len(stored(run, task)) for task in [*tasks, TASK]] == [1, 1, 0]
    assert [stored(run, task)[0].trajectory.task for task in tasks] == tasks


def test_they_are_stored_once(run, tmp_path):
    path = tmp_path / "demos.jsonl"
    path.write_text(chat("click left [1]") * 2 + chat("click left [1]", seed=2))
    whole = pool_recipe(demonstrations=str(path))
    settle(whole, run)
    before = run.events()
    settle(whole, run)
    assert run.events() == before
    assert before[0].fields == {"file": str(path), "stored": 2, "known": 0, "left_out": {"duplicate": 1}}
    assert len(stored(run)) == 1
    path.write_text(path.read_text() + chat("click right [2]"))
    settle(whole, run)
    assert len(stored(run)) == 2


def test_all_or_none(run):
    """The second task's seed fits no column of the database."""
    good = trajectory(TASK, reward=1.0)
    with pytest.raises((OverflowError, sa.exc.DBAPIError)):
        run.pool.store_demonstrations([good, trajectory(replace(TASK, seed=2**70), reward=1.0)], 8)
    assert stored(run) == []
    assert run.pool.store_demonstrations([good], 8) == 1


def test_the_newest_of_a_task_are_in_use(run, tmp_path):
    lines = [chat(f"click left [{n}]") for n in range(4)]
    assert demonstrate(run, tmp_path, *lines, entries_per_task=2).stored == 4
    assert [member.trajectory.turns[0].response for member in stored(run)] == ["click left [3]", "click left [2]"]
    again = demonstrate(run, tmp_path, *lines, lines[0], entries_per_task=2)
    assert (again.stored, again.known, again.left_out) == (0, 4, {"duplicate": 1})
    assert len(stored(run)) == 2


def test_they_are_no_rollouts_of_the_policy(run, tmp_path):
    demonstrate(run, tmp_path, *(chat("click left [1]", seed=seed) for seed in range(5)))
    assert run.groups.admitted() == 0 and run.groups.ahead() == 0
    assert recent_rates(run, 60).rollouts_per_second == 0 and recent_rates(run, 60).prompt_tokens_per_second == 0
    assert status_counts(run) == {} and run.statistics.families(32) == {}
    assert run_totals(run).train_rollouts == 0 and run_totals(run).attempts == {}
    assert run.rollouts.claim("w", 9, 60) == [] and run.groups.closable(0) == [] and run.groups.closed() == []
    assert selection_bias(run).sampled == 0
    assert list(stored_trajectories(run, Selection())) == []
    fail(run)
    assert run.groups.admitted() == 1 and recent_rates(run, 60).rollouts_per_second == 2


def test_a_bound_on_age_leaves_them_alone(run, tmp_path):
    demonstrate(run, tmp_path, chat("click left [1]"))
    assert len(run.pool.usable(TASK, 8, max_lag=0)) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (chat("click left [1]", seed=1_000_000), "held out"),
        ('{"messages": []}\n', r"demos\.jsonl:1 is not a chat that names its task: .*`family`"),
        (chat("click left [1]") + "{\n", r"demos\.jsonl:2"),
        (chat("click left [1]", turn=1), "turn 1 does not follow"),
        (chat("click left [1]") + chat("click left [1]", turn=1, seed=2), "turn 1 does not follow turn 0"),
        (json.dumps({"messages": [{"role": "user", "content": "x"}], "family": "fixed", "seed": 1}), "roles must be"),
        (chat("click left [1]", observation_hash="0123"), r"has another observation format than this run .hash 0123"),
        (chat("click left [1]", family="fixd"), "can be used by this run: 1 of a task"),
        (chat("click left [1]", seed=500), "1 of a task"),
        (chat("click left [1]", env="miniwob"), "1 of a task"),
        (chat("click left [1]", params={"turns": 2}), "1 of a task"),
        (chat("click left [1]", success=False), "1 without success"),
        (chat("click left [1]", read="left " * 2000), "1 longer than"),
        ("", "it is empty"),
        ("text\n", "not a JSON Lines file"),
    ],
)
def test_what_is_refused(tmp_path, clock, bandit_policy, line, message):
    with pytest.raises(ConfigError, match=message):
        run = Ledger.create(tmp_path / "run", clock=clock)
        run.policies.register_initial(str(bandit_policy))
        try:
            demonstrate(run, tmp_path, line)
        finally:
            assert stored(run) == []
            run.close()


def test_rollouts_that_may_not_be_demonstrated_are_rejected(tmp_path, clock, bandit_policy):
    run = Ledger.create(tmp_path / "run", clock=clock)
    run.policies.register_initial(str(bandit_policy))
    path = tmp_path / "demos.jsonl"
    suite = recipe(env={"name": "miniwob", "suite": "miniwob-24", "families": []}, replay={"name": "success_pool"})
    forbidden = sorted(undemonstrated_families(suite.env))[0]
    path.write_text(chat("click Tab [1]", family=forbidden))
    with pytest.raises(ConfigError, match=f"{forbidden} may not be demonstrated"):
        store_into(run, suite, path)
    run.close()


def test_stored_needs_logprobs(run, tmp_path):
    with pytest.raises(ConfigError, match="no log-probs"):
        demonstrate(run, tmp_path, chat("click left [1]"), demonstration_rule="stored")


def test_a_run_without_a_pool(run, tmp_path):
    with pytest.raises(ConfigError, match="has no success pool"):
        demonstrate(run, tmp_path, chat("click left [1]"), name="none")


@pytest.fixture
def other(tmp_path, clock, bandit_policy):
    """Another run of the same policy, with one success and one failure of the task, sampled by its version 12."""
    ledger = Ledger.create(tmp_path / "other", clock=clock)
    ledger.policies.register_initial(str(bandit_policy))
    settle(pool_recipe(), ledger)
    group = ledger.groups.admit(replace(plan(), task=TASK))
    for lease in ledger.rollouts.claim("w", 2, 60):
        finish(ledger, lease, reward=float(lease.index), versions=(12, 12))
    ledger.groups.close(group)
    yield ledger
    ledger.close()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_trajectories_of_another_run(run, other, tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    export(other, pool_recipe(), kind, path, Selection())
    whole = pool_recipe(demonstrations=str(path), demonstration_rule="stored")
    settle(whole, run)
    (event,) = run.events()
    assert (event.fields["stored"], event.fields["left_out"]) == (1, {"no_success": 1})
    assert stored(run)[0].trajectory == replace(trajectory(TASK, reward=1.0, versions=(12, 12)))
    assert run.pool.usable(TASK, 8, max_lag=0), "a version of another run is no age here"
    fail(run)
    judge(run, demonstration_rule="stored", max_lag=0)
    batch = run.batches.claim("t", 1, 0, "mask", 60)
    assert batch is not None
    assert [member.replay for member in batch.groups[0].members] == [None, None, ReplayRule.STORED]
    *_, demonstrated = pack_batch(batch, max_lag=0).branches
    assert demonstrated.rollout_logprobs_L[demonstrated.trained_L].tolist() == [-0.5, -0.5]


def test_trajectories_that_mean_something_else(run, other, tmp_path):
    path = tmp_path / "x.jsonl"
    export(other, pool_recipe(), "jsonl", path, Selection())
    lines = path.read_text()
    path.write_text(lines.replace('"tokenizer_hash":"', '"tokenizer_hash":"0'))
    with pytest.raises(ConfigError, match=r"x\.jsonl:1 has another tokenizer"):
        store_into(run, pool_recipe(), path)
    other.set_value("fingerprint", None)
    export(other, pool_recipe(), "jsonl", path, Selection())
    with pytest.raises(ConfigError, match="does not name the tokenizer"):
        store_into(run, pool_recipe(), path)


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"top_k": 3}])
def test_greedy_and_truncated_trajectories_are_refused(change, run, other, tmp_path):
    path = tmp_path / "x.jsonl"
    export(other, pool_recipe(), "jsonl", path, Selection(successes_only=True))
    line = json.loads(path.read_text())
    line["trajectory"]["calls"][0]["sampling"] |= change
    path.write_text(json.dumps(line))
    with pytest.raises(ConfigError, match="greedily or from a truncated"):
        store_into(run, pool_recipe(), path)


def test_live_successes_keep_their_own_rule(run, tmp_path):
    demonstrate(run, tmp_path, chat("click left [1]"))
    group = run.groups.admit(replace(plan(), task=TASK))
    for lease in run.rollouts.claim("w", 2, 60):
        finish(run, lease, reward=float(lease.index))
    judge(run)
    assert [member.replay for member in stored(run)] == [ReplayRule.STORED, ReplayRule.RECOMPUTE]
    assert run_totals(run).groups == {"trainable": 1} and group
