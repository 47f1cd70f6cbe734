"""Names of environments that both Quartet and a module of the current folder have."""

from pathlib import Path

import pytest

from quartet.cli.env.naming import environment_name
from quartet.env.base import Environment
from quartet.errors import ConfigError
from quartet.registry import registered
from tests.command import quartet


def test_a_new_environment_with_a_registered_name_is_refused(tmp_path: Path) -> None:
    refused = quartet("env", "new", "locks", folder=tmp_path)
    assert refused.returncode == 2 and "an environment 'locks' exists" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_a_name_of_two_environments_is_refused_with_the_form_that_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "locks.py"
    module.write_text("print('a script')")
    assert environment_name("locks") == "locks", "a script is no environment"
    module.write_text("from quartet.env.base import Environment\n")
    with pytest.raises(ConfigError, match="write locks:CLASS"):
        environment_name("locks")
    assert environment_name("locks:Mine") == "locks:Mine"


def test_the_module_of_a_registered_environment_has_no_rival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doors.py").write_text("from quartet.env.base import Environment\n")
    monkeypatch.setitem(registered, ("env", "doors"), type("Doors", (Environment,), {"__module__": "doors"}))
    assert environment_name("doors") == "doors"
