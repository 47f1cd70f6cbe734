"""The registry of parts: files of the package, entry points, `module:Class`, and plugins."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.errors import ConfigError
from quartet.kinds import KINDS
from quartet.part import Part
from quartet.recipe.part_description import describe_all_parts
from quartet.registry import find, names, register


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_kind_is_one_documented_part(kind):
    assert names(kind)
    for name in names(kind):
        part = find(kind, name)
        assert issubclass(part, Part) and part.__doc__
        assert all(re.fullmatch(r"[a-z]+/[a-z0-9_]+", metric) for metric in part.metrics)
        assert all(": " in meaning for meaning in part.metrics.values()), "unit: meaning"
        settings = part.Settings.model_fields.values()
        assert all(info.description for info in settings), f"{kind} {name}"
        optional = [info for info in settings if NoneType in get_args(info.annotation)]
        assert all(info.default is None for info in optional), "TOML has no null, so a run's config.toml omits it"


@pytest.mark.slow
def test_listing_names_imports_no_part():
    program = (
        "import sys; from quartet.kinds import KINDS; from quartet.registry import names;"
        "[names(kind) for kind in KINDS];"
        "print([m for m in sys.modules if m == 'torch' or m.endswith(('.vade', '.gspo', '.april'))])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


SAMPLER = """
from quartet.config.section import Section
from quartet.manager.control.base import TaskSampler

class AlwaysFirst(TaskSampler):
    '''Always the first family.'''
    class Settings(Section):
        offset: int = 0
        '''Added to the counter.'''
    settings: Settings
    def pick(self, n):
        first = self.settings.offset
        return [self.context.task(self.context.families[0], self.context.draw(first + i)) for i in range(n)]
"""


def test_new_file_in_a_kinds_folder_is_a_part_without_any_other_edit(tmp_path, monkeypatch):
    (tmp_path / "always_first.py").write_text(SAMPLER)
    folder = importlib.import_module(KINDS["sampler"].folder)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    assert "always_first" in names("sampler")
    assert find("sampler", "always_first").Settings.model_fields["offset"].default == 0
    assert any(part.name == "always_first" for part in describe_all_parts())


def test_installed_package_adds_a_part_by_entry_point(tmp_path, monkeypatch):
    (tmp_path / "someones_package.py").write_text(SAMPLER)
    information = tmp_path / "someones_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[quartet.sampler]\nfirst_of_all = someones_package:AlwaysFirst\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "first_of_all" in names("sampler")
    assert find("sampler", "first_of_all").__name__ == "AlwaysFirst"
    assert find("sampler", "someones_package:AlwaysFirst") is find("sampler", "first_of_all")


@pytest.mark.parametrize(("name", "packages"), [("uniform", ["one"]), ("first_of_all", ["one", "two"])])
def test_a_name_that_a_package_takes_a_second_time_is_refused_with_the_paths(tmp_path, monkeypatch, name, packages):
    for package in packages:
        (tmp_path / f"package_{package}.py").write_text(SAMPLER)
        information = tmp_path / f"package_{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{package}\nVersion: 1.0\n")
        lines = f"[quartet.sampler]\n{name} = package_{package}:AlwaysFirst\n"
        (information / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"more than one sampler has the name '{name}'.*package_one:AlwaysFirst"):
        find("sampler", name)
    assert find("sampler", "package_one:AlwaysFirst")


def test_plugin_cannot_take_a_name_that_is_taken():
    with pytest.raises(ConfigError, match="a sampler named 'vade' already exists"):
        register("sampler", "vade")(find("sampler", "uniform"))
    with pytest.raises(ConfigError, match="unknown kind of part 'samplr'"):
        names("samplr")


@pytest.mark.parametrize("path", [":Class", "..package:Class", "json:", "no_such_module:Class"])
def test_a_path_that_is_none_is_refused_with_the_form_of_one(path):
    with pytest.raises(ConfigError, match="no credit at") as refused:
        find("credit", path)
    assert refused.value.advice.startswith("write module:Class")


def test_parts_command_lists_settings_and_sources():
    answer = CliRunner().invoke(cli, ["parts", "--json"])
    parts = {(part["kind"], part["name"]): part for part in json.loads(answer.output)}
    assert {kind for kind, _ in parts} == set(KINDS)
    vade = parts["sampler", "vade"]
    assert vade["settings"][0]["name"] == "exponent" and "VADE" in vade["source"]
    assert parts["loss_term", "ppo_clip"]["metrics"]["train/ratio_mean"].startswith("1: ")
    shown = CliRunner().invoke(cli, ["parts", "loss_term"]).output
    assert "gspo" in shown and "train/ratio_mean" in shown and "clip_low" in shown and "vade" not in shown


def test_no_file_outside_a_part_names_it():
    """Adding a method edits nothing else, so nothing else may list the methods that ship."""
    package = Path(sys.modules["quartet"].__file__ or "").parent
    for kind in ("sampler", "allocator", "filter", "straggler"):
        folder = Path(importlib.import_module(KINDS[kind].folder).__file__ or "").parent
        for name in set(names(kind)) - {"fixed", "none"}:
            module = f"{KINDS[kind].folder}.{name}"
            users = [path for path in package.rglob("*.py") if path.parent != folder and module in path.read_text()]
            assert users == [], f"{name} is imported by {users}"


def test_a_part_with_the_former_name_of_its_settings_is_refused_with_the_new_one():
    with pytest.raises(ConfigError, match="rename `Knobs` to `Settings`"):
        type("Former", (Part,), {"Knobs": Part.Settings})
