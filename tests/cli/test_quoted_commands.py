"""Commands that errors and outputs advise can be pasted into a shell, also for a folder with a space in its name."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import quartet
from quartet.cli import cli
from quartet.errors import LedgerError, QuartetError, SetupError
from quartet.ledger import Ledger
from quartet.manager.manager import manager_lock
from quartet.run.run_dir import RunLock
from quartet.runtime.repeated_error import raise_if_repeated
from quartet.types import Status
from tests.ledger.samples import finish, plan, recipe

BEFORE_A_VALUE = re.compile(r"quartet [a-z]+(?: [a-z]+)* $")
WITHOUT_SPACES = {"name", "value", "path.name", "model.kind", "choice.kind", "min(DOWNLOADS)"}
"""Values that need no quotes: kinds of parts, parts, modules and downloads."""


def unquoted_values(text: str) -> list[str]:
    """Return the values that f-strings put into a command without quotes."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, value in zip(node.values, node.values[1:], strict=False):
            command = isinstance(before, ast.Constant) and BEFORE_A_VALUE.search(str(before.value))
            if command and isinstance(value, ast.FormattedValue):
                source = ast.unparse(value.value)
                if not re.match(r"(shlex\.)?quote\(", source):
                    found.append(source)
    return found


def test_no_command_contains_an_unquoted_path():
    assert unquoted_values('f"quartet ledger check {run}", f"quartet view {quote(run)}"') == ["run"]
    files = Path(quartet.__file__).parent.rglob("*.py")
    found = [(file.name, value) for file in files for value in unquoted_values(file.read_text())]
    assert [one for one in found if one[1] not in WITHOUT_SPACES] == []


def commands(text: str) -> list[list[str]]:
    """Return the words of each command between backticks, as a shell reads them."""
    return [shlex.split(command) for command in re.findall(r"`(quartet [^`]+)`", text)]


def test_the_recipe_that_init_writes_is_trained_by_its_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["init", "my agent", "--env", "bandit", "--model", "miniwob-start"]
    shown = CliRunner().invoke(cli, arguments, catch_exceptions=False).output
    lines = [shlex.split(line) for line in shown.splitlines() if line.startswith("quartet train")]
    assert [line[:3] for line in lines] == [["quartet", "train", "my agent/recipe.toml"]] * 2
    shown = CliRunner().invoke(cli, ["recipes", "describe", "my agent"], catch_exceptions=False).output
    assert "quartet train 'my agent' --dry-run" in shown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "my run"
    ledger = Ledger.create(folder)
    ledger.policies.register_initial("policy")
    ledger.close()
    return folder


@pytest.mark.parametrize("lock", [RunLock, manager_lock])
def test_a_lock_names_the_command_that_stops_its_run(run, lock):
    with lock(run), pytest.raises(SetupError) as refused, lock(run):
        pass
    assert ["quartet", "stop", str(run)] in commands(refused.value.advice)


def test_repeated_errors_name_the_command_that_shows_them(run):
    ledger = Ledger.open(run)
    ledger.groups.admit(plan(rollouts=8))
    for lease in ledger.rollouts.claim("worker", 8, 60):
        finish(ledger, lease, status=Status.ERROR_ENV, max_attempts=1)
    with pytest.raises(QuartetError) as repeated:
        raise_if_repeated(recipe(rollout={"max_identical_errors": 8}), ledger)
    ledger.close()
    assert ["quartet", "view", str(run)] in commands(repeated.value.advice)


def test_an_older_ledger_names_the_command_that_upgrades_it(run):
    ledger = Ledger.open(run)
    ledger.set_value("schema_version", 11)
    ledger.close()
    with pytest.raises(LedgerError) as older:
        Ledger.view(run)
    assert ["quartet", "ledger", "upgrade", str(run)] in commands(older.value.advice)
