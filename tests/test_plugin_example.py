"""The package of examples/plugin: installed into an environment of its own, found there, and trained with."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "examples" / "plugin"
REGISTERED = """
from quartet.registry import register
from quartet_colours.env import Colours

@register("env", "two_colours")
class TwoColours(Colours):
    '''Only a module of `plugins` knows it.'''
"""


def test_every_part_of_the_example_is_one_short_file():
    files = {file.stem: file.read_text().count("\n") for file in PLUGIN.glob("quartet_colours/*.py")}
    assert len(files) == 6 and max(files.values()) <= 40


@pytest.fixture(scope="session")
def python(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The interpreter of a fresh environment with the plug-in; Quartet and what it needs are lent by this one."""
    return made_once("environment-with-plugin", install_plugin) / "venv" / "bin" / "python"


def install_plugin(folder: Path) -> None:
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n")
    (site / "registered.py").write_text(REGISTERED)
    source = shutil.copytree(PLUGIN, folder / "plugin")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", *offline, str(source)], check=True)


def quartet(python: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, so that only what is installed is found."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"NO_COLOR": "1"}
    command = [str(python), "-m", "quartet", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_installed_parts_are_listed_with_settings_and_metrics(python, tmp_path):
    listed = json.loads(quartet(python, tmp_path, "parts", "--json").stdout)
    own = {(part["kind"], part["name"]): part for part in listed if part["path"].startswith("quartet_colours.")}
    assert len(own) == 5
    assert own["env", "colours"]["settings"][0]["name"] == "buttons"
    assert "train/pushed_up_fraction" in own["loss_term", "reinforce"]["metrics"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_training_under_processes_with_parts_of_entry_points_and_plugins(python, tmp_path):
    registered = ("--set=plugins=['registered']", "--set=env.name=two_colours", "--set=env.buttons=2")
    few = ("--set", "train.max_train_steps=2", "--run-dir", tmp_path / "run", "--json")
    ended = quartet(python, tmp_path, "train", PLUGIN / "recipe.toml", *registered, *few)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (2, 0, 0)
    records = [file.read_text() for file in (tmp_path / "run" / "metrics" / "trainer").rglob("*.jsonl")]
    assert "pushed_up_fraction" in "".join(records)
    log = (tmp_path / "run" / "logs" / "trainer.jsonl").read_text()
    assert "not declared" not in log
    assert 'kind = "processes"' in (tmp_path / "run" / "config.toml").read_text()
