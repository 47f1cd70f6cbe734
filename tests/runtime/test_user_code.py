"""Whole runs whose environment, agent loop or filter is broken: they stop with the error and the place it came from."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from starlette.testclient import TestClient

from benchmarks.bandit import bandit_recipe
from quartet.cli import cli
from quartet.ledger import Ledger
from quartet.ledger.schema import trajectories
from quartet.recipe.file import to_toml
from quartet.report.totals import run_totals
from quartet.web.app import build_app
from tests.command import Ended, quartet

pytestmark = pytest.mark.slow

BROKEN = '''
from quartet.manager.filter.base import Filter
from quartet.env.environment.bandit import Bandit, BanditEnv
from quartet.rollout.loop.base import Limits  # noqa: F401
from quartet.rollout.loop.append import AppendLoop


class Odd(BanditEnv):
    async def step(self, action):
        raise ValueError(f"no door {id(self)}")


class OddBandit(Bandit):
    def session(self):
        return Odd(self._episodes)


class Loop(AppendLoop):
    async def run(self, task, env, model, limits):
        return {}["memory"]


class OddFilter(Filter):
    """Fails at every group."""

    # The registry passes the settings, of which it has none.
    def apply(self, group):
        return group.no_such_thing
'''
"""Parts in a file beside the recipe."""


def train(tmp_path: Path, policy: Path, *arguments: str, code: str = BROKEN, **sections: dict) -> Ended:
    """Run `quartet train` in a folder with the broken code, as a user would."""
    (tmp_path / "broken.py").write_text(code)
    small = {"env": {"families": [], "sessions": 2}, "evaluation": {"before_and_after": False}}
    (tmp_path / "recipe.toml").write_text(to_toml(bandit_recipe(policy, **small, **sections)))
    return quartet("train", "recipe.toml", "--run-dir", "run", *arguments, folder=tmp_path)


@pytest.mark.parametrize("runtime", ["processes", "synchronous"])
def test_exception_of_the_environment_stops_the_run_and_the_repaired_run_is_resumed(tmp_path, bandit_policy, runtime):
    sections = {"rollout": {"max_identical_errors": 7}, "runtime": {"kind": runtime}, "admission": {"max_lag": 0}}
    sections |= {"train": {"max_train_steps": 1}}
    odd = ("--set", "env.name=broken:OddBandit")
    ended = train(tmp_path, bandit_policy, *odd, **sections)
    assert ended.returncode == 1, ended.stderr
    shows_the_error_everywhere(tmp_path, ended)
    if runtime == "synchronous":  # errors from before the resume do not count
        code = BROKEN.replace("raise ValueError", "return await super().step(action)\n        raise")
        repaired = train(tmp_path, bandit_policy, "--resume", *odd, code=code, **sections)
        assert repaired.returncode == 0, repaired.stderr


def shows_the_error_everywhere(tmp_path: Path, ended: Ended) -> None:
    """In the terminal, the ledger, the dashboard and `quartet status`."""
    place = "(broken.py:10, in step)"
    assert (
        "error: 7 rollouts in a row ended as error_env with the same error: Odd.step raised ValueError" in ended.stderr
    )
    assert place in ended.stderr and 'raise ValueError(f"no door {id(self)}")' in ended.stderr
    again = "-> fix it and continue with `quartet train run/config.toml --run-dir run --resume`"
    assert again in ended.stderr and "to watch the run: quartet view run" in ended.stderr
    assert "closed the connection" not in ended.stderr
    ledger = Ledger.view(tmp_path / "run")
    stored = run_totals(ledger).attempts
    with ledger.read() as connection:  # what was at work when the run stopped may have ended otherwise
        row = connection.execute(sa.select(trajectories).where(trajectories.c.error.contains(place))).first()
    record = ledger.store.load(row.blob)
    reason = ledger.stop_reason()
    ledger.close()
    assert 7 <= sum(stored.values()) <= 40, "it does not go on for long"
    assert row.status == "error_env" and record.error == row.error
    assert record.traceback.startswith("Traceback") and "broken.py" in record.traceback
    assert "Odd.step raised ValueError" in reason
    with TestClient(build_app([tmp_path / "run"]), base_url="http://localhost") as client:
        page = client.get(f"/runs/run/rollouts/{row.rollout_id}").text
    assert "broken.py" in page and "Traceback (most recent call last)" in page
    status = CliRunner().invoke(cli, ["status", str(tmp_path / "run")], env={"COLUMNS": "400"})
    assert "Odd.step raised ValueError" in status.output


def test_an_exception_of_the_agent_loop_stops_the_run(tmp_path, bandit_policy):
    ended = train(tmp_path, bandit_policy, "--set", "rollout.loop=broken:Loop", rollout={"max_identical_errors": 5})
    assert ended.returncode == 1
    assert "5 rollouts in a row ended as error_agent with the same error: KeyError: 'memory'" in ended.stderr
    assert "(broken.py:20, in run)" in ended.stderr and "died" not in ended.stderr, "the worker lives on"


def test_an_exception_of_a_filter_stops_the_run_and_its_traceback_is_printed(tmp_path, bandit_policy):
    ended = train(tmp_path, bandit_policy, "--set", "filters=['broken:OddFilter']")
    assert ended.returncode == 1
    assert "error: module 'manager' died 3 times of the same exception" in ended.stderr
    assert "return group.no_such_thing" in ended.stderr and "(broken.py:28, in apply)" in ended.stderr
    ledger = Ledger.view(tmp_path / "run")
    deaths = [event.fields for event in ledger.events(1000) if event.kind == "module_died"]
    ledger.close()
    assert {death["module"] for death in deaths} == {"manager"}, "what the alarm is made of"
    assert all(death["last_words"].startswith("AttributeError") for death in deaths)
