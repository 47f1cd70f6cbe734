"""From one run to another: export, demonstrations, replay, fine-tuning; and export from a run at work."""

import json

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.config import Sft
from quartet.exchange.jsonl import read_jsonl
from quartet.exchange.parquet import read_parquet
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.totals import run_totals
from quartet.runtime.run import run_recipe
from quartet.types import Purpose
from tests.command import quartet
from tests.live_runs import promises_hold, slow_learner, train_while

pytestmark = pytest.mark.slow


def pairs(policy, **sections):
    """Groups of two, half of which have no contrast; few enough tasks that they recur."""
    control = {"rollouts_per_group": 2, "train_seeds_per_family": 3}
    train = {"max_train_steps": 6, "learning_rate": 1e-5}
    sections = {"control": control, "train": train, "evaluation": {"before_and_after": False}} | sections
    return bandit_recipe(policy, runtime={"kind": "synchronous"}, admission={"max_lag": 0}, **sections)


def export(run, kind, output, *arguments):
    done = quartet("ledger", "export", run, "--format", kind, "--output", output, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def teacher(made_once, bandit_policy):
    """A run that has ended, without replay."""

    def make(folder):
        run_recipe(pairs(bandit_policy), folder / "run", resume=False, fresh=False, quiet=True)

    return made_once("teacher", make) / "run"


def test_all_formats_tell_the_same(teacher, tmp_path):
    lines, table, chats = tmp_path / "x.jsonl", tmp_path / "x.parquet", tmp_path / "chat.jsonl"
    summary = export(teacher, "jsonl", lines)
    ledger = Ledger.open(teacher)
    assert summary["trajectories"] == run_totals(ledger).train_rollouts > 20
    assert summary["response_tokens"] == run_totals(ledger).response_tokens
    ledger.close()
    assert export(teacher, "parquet", table)["trajectories"] == summary["trajectories"]
    assert [record for _, record in read_parquet(table)] == [record for _, record in read_jsonl(lines)]
    successes = sum(record.trajectory.success for _, record in read_jsonl(lines))
    assert export(teacher, "chat", chats)["trajectories"] == successes
    assert export(teacher, "chat", chats, "--any-outcome")["trajectories"] == summary["trajectories"]


@pytest.mark.parametrize(("kind", "rule"), [("jsonl", "stored"), ("chat", "recompute")])
def test_another_run_replays_it(teacher, tmp_path, bandit_policy, kind, rule):
    file, folder = tmp_path / "successes.jsonl", tmp_path / "run"
    export(teacher, kind, file, "--success")
    replay = {"name": "success_pool", "demonstrations": str(file), "demonstration_rule": rule}
    for steps, resume in ((2, False), (4, True)):
        recipe = pairs(bandit_policy, replay=replay, train={"max_train_steps": steps, "learning_rate": 1e-5})
        summary = run_recipe(recipe, folder, resume=resume, fresh=False, quiet=True)
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (4, 0, 0)
    assert summary["replayed"] > 0
    ledger = Ledger.open(folder)
    (event,) = (event for event in ledger.events(10_000) if event.kind == "demonstrations_stored")
    assert event.fields["stored"] > 0
    ledger.close()
    again = json.loads(quartet("ledger", "import", folder, file, "--json").stdout)
    assert (again["stored"], again["known"]) == (0, event.fields["stored"] + event.fields["known"])
    assert quartet("ledger", "check", folder).returncode == 0


def test_a_chat_becomes_the_ids_that_were_sampled(teacher, tmp_path, bandit_policy):
    """Of every response whose text is spelt by the tokenizer as the policy spelt it, and that ended by itself."""
    from quartet.policy.examples import read_chats
    from quartet.policy.tokenizer_files import load_tokenizer

    lines, chats = tmp_path / "x.jsonl", tmp_path / "chat.jsonl"
    export(teacher, "jsonl", lines, "--success")
    export(teacher, "chat", chats)
    calls = [call for _, record in read_jsonl(lines) for call in record.trajectory.calls]
    sampled = [call.prompt_ids + call.response_ids for call in calls]
    examples = [example.token_ids for example in read_chats(chats, load_tokenizer(bandit_policy))]
    assert len(sampled) == len(examples)
    same = sum(mine == theirs for mine, theirs in zip(sampled, examples, strict=True))
    assert same / len(sampled) > 0.9


def test_fine_tuning_reads_it(teacher, tmp_path, bandit_policy):
    chats, recipe = tmp_path / "chat.jsonl", tmp_path / "recipe.toml"
    export(teacher, "chat", chats)
    sft = Sft(data=str(chats), output=str(tmp_path / "policy"), steps=5, tokens_per_batch=256)
    recipe.write_text(to_toml(bandit_recipe(bandit_policy).model_copy(update={"sft": sft})))
    done = quartet("sft", recipe, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["demonstration_steps"], summary["examples"]) == (5, len(chats.read_text().splitlines()))


def test_a_run_at_work_is_exported(tmp_path, bandit_policy):
    def export_and_train_on(ledger, wait):
        summary = export(tmp_path / "run", "jsonl", tmp_path / "x.jsonl")
        exported_at = ledger.batches.train_step()
        wait(lambda: ledger.batches.train_step() >= exported_at + 2)
        records = [record for _, record in read_jsonl(tmp_path / "x.jsonl")]
        assert len(records) == summary["trajectories"] > 0
        assert {record.provenance.purpose for record in records} == {Purpose.TRAIN}
        assert all(record.fingerprint for record in records)

    summary = train_while(tmp_path / "run", slow_learner(bandit_policy, max_train_steps=1000), export_and_train_on)
    promises_hold(tmp_path / "run", summary)
