"""Adding a part touches exactly one file: one new part of every kind, listed, and named and set in a recipe."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quartet.kinds import KINDS
from quartet.registry import find, names

ROOT = Path(__file__).parents[1]
FILE = '''
from {module} import {name} as Base


class BrandNew(Base):
    """A part that was added by this file alone."""

    class Settings(Base.Settings):
        volume: int = 3
        """A setting that no other part has."""

    settings: Settings
    metrics = {{"new/{kind}_nats": "nats: what only this part records"}}

    @classmethod
    def check(cls, settings, recipe):
        """Fit every recipe."""
'''
PROGRAM = """
import json
from typing import get_args
from pydantic import BaseModel
from quartet.config import Choice, Recipe
from quartet.recipe.part_description import describe_all_parts
from quartet.recipe.file import parse_recipe
from quartet.recipe.parts import choices

def choose(model):
    '''Name the new part wherever a recipe has a place for one.'''
    data = {}
    for name, info in model.model_fields.items():
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, Choice):
                data[name] = {"name": "brand_new", "volume": 5}
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                data[name] = choose(kind)
    return data

recipe = parse_recipe(choose(Recipe) | {"name": "x", "model": {"path": "/m"}}, "test")
listed = {part.kind: part.to_dict() for part in describe_all_parts() if part.name == "brand_new"}
print(json.dumps({"chosen": {one.kind: one.settings["volume"] for _, one in choices(recipe)}, "listed": listed}))
"""


@pytest.mark.slow
def test_one_new_part_of_every_kind_is_one_new_file_each(tmp_path):
    unfinished = shutil.ignore_patterns("*.pyc.*")  # finished byte code is copied, so that it is not made again
    copy = shutil.copytree(ROOT / "quartet", tmp_path / "quartet", ignore=unfinished)
    before = contents(copy)
    for kind in KINDS:
        base, folder = find(kind, names(kind)[0]), importlib.import_module(KINDS[kind].folder).__name__
        new = tmp_path / folder.replace(".", "/") / "brand_new.py"
        new.write_text(FILE.format(module=base.__module__, name=base.__name__, kind=kind))
    after = contents(copy)
    assert {path: after[path] for path in before} == before
    assert len(after) - len(before) == len(KINDS)

    command = [sys.executable, "-B", "-c", PROGRAM]
    ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["listed"].keys() == KINDS.keys()
    assert answer["chosen"] == dict.fromkeys(KINDS.keys() - {"doctor", "env_check", "reward"}, 5), (
        "checks are in no recipe, rewards in an environment"
    )
    for kind, part in answer["listed"].items():
        assert part["settings"][-1] == {"name": "volume", "default": 3, "meaning": "A setting that no other part has."}
        assert part["metrics"] == {f"new/{kind}_nats": "nats: what only this part records"}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
