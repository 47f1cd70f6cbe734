"""Two policies in one run of separate processes, and a trained one against a frozen one."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.ledger.schema import batches, trajectories, uses
from quartet.policy.digest import weights_digest
from quartet.policy.weights import read_weights
from quartet.recipe.file import load_recipe
from quartet.report.audit import audit
from quartet.report.check import check_ledger
from quartet.report.status import StatusReader
from quartet.report.totals import run_totals
from quartet.telemetry.receipts import FOLDER
from tests.live_runs import train

pytestmark = pytest.mark.slow


def pennies(policy: Path, max_train_steps: int, *settings: str) -> Recipe:
    """`recipes/pennies` with a smaller policy, which shows either side about equally often."""
    smaller = (f'model.path="{policy}"', "train.groups_per_batch=1", "rollout.temperature=1")
    steps = f"train.max_train_steps={max_train_steps}"
    return load_recipe(Path("pennies"), [*smaller, steps, "runtime.receipts=true", *settings])


def digest(folder: str | Path) -> str:
    return weights_digest(read_weights(Path(folder)))


def used_by(ledger: Ledger) -> dict[str, set[str]]:
    """By the policy of a batch: whose trajectories it used."""
    query = sa.select(batches.c.policy, trajectories.c.policy).distinct()
    query = query.select_from(uses.join(batches, uses.c.batch_id == batches.c.id).join(trajectories))
    with ledger.read() as connection:
        rows = connection.execute(query).all()
    return {trainer: {policy for other, policy in rows if other == trainer} for trainer, _ in rows}


def without_steps_of(run_dir: Path, policy: str) -> None:
    """Delete the receipts of a policy's train steps."""
    for file in (run_dir / FOLDER).glob("trainer-*.jsonl"):
        lines = file.read_text().splitlines(keepends=True)
        gone = {"type": "committing", "policy": policy}.items()
        file.write_text("".join(line for line in lines if not gone <= json.loads(line).items()))


def test_two_policies_train_in_one_run(tmp_path, bandit_policy):
    summary = train(tmp_path / "run", pennies(bandit_policy, 2))
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    for name in ("even", "odd"):
        one = summary["policies"][name]
        assert (one["trained"], one["train_steps"], one["version"], one["over_lag"]) == (True, 2, 2, 0)
        assert max(map(int, one["lag_histogram"])) <= 2
    again = train(tmp_path / "run", pennies(bandit_policy, 3), resume=True)
    assert [one["train_steps"] for one in again["policies"].values()] == [3, 3]
    ledger = Ledger.open(tmp_path / "run")
    assert used_by(ledger) == {"even": {"even"}, "odd": {"odd"}}
    assert check_ledger(ledger, max_lag=2).findings == []
    folders = [one.policies.latest().path for one in ledger.each()]
    assert len({digest(bandit_policy), *map(digest, folders)}) == 3, "each went its own way"
    shown = StatusReader(tmp_path / "run", ledger).read()
    assert [(one.name, one.train_step) for one in shown.policies] == [("even", 3), ("odd", 3)]
    ledger.close()
    report = audit(tmp_path / "run")
    assert (report.findings, report.train_steps, report.replay_identical) == ([], 6, True)
    assert report.appended >= report.trained > 0
    without_steps_of(tmp_path / "run", "odd")
    found = audit(tmp_path / "run").findings
    assert found and all(one.what.startswith("policy odd: ") for one in found)


def test_the_tokens_of_a_frozen_opponent_stay_out_of_the_loss(tmp_path, bandit_policy):
    summary = train(tmp_path / "run", pennies(bandit_policy, 3, "policies.odd.trained=false"))
    assert {name: one["train_steps"] for name, one in summary["policies"].items()} == {"even": 3, "odd": 0}
    ledger = Ledger.open(tmp_path / "run")
    assert used_by(ledger) == {"even": {"even"}}, "no use row names a trajectory of the opponent"
    opponent = ledger.of("odd")
    assert [policy.version for policy in opponent.policies.live()] == [0]
    assert digest(opponent.policies.latest().path) == digest(bandit_policy) != digest(ledger.policies.latest().path)
    tokens = sa.func.sum(trajectories.c.response_tokens)
    in_batches = sa.select(tokens).join(uses, uses.c.trajectory_id == trajectories.c.id).where(~uses.c.voided)
    with ledger.read() as connection:
        sampled = dict(
            connection.execute(sa.select(trajectories.c.policy, tokens).group_by(trajectories.c.policy)).all()
        )
        used = connection.execute(in_batches).scalar_one()
    totals = run_totals(ledger)
    assert sampled["odd"] > 0 and totals.trained_tokens + totals.masked_tokens == used <= sampled["even"]
    assert check_ledger(ledger, max_lag=2).findings == [] and totals.lost == 0
    ledger.close()
