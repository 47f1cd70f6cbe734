"""Wheel and source distribution: built by `python -m build`, installed outside the checkout, and trained with."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import quartet as package

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="session")
def distributions(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Folder of both: the wheel is built from the source distribution, so that it takes nothing from the checkout.

    `build` checks that this environment has the requirements for it; `make setup` builds in an environment of its own.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    return made_once("dist", lambda folder: subprocess.run([*command, str(folder)], check=True, capture_output=True))


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel alone is installed; what it depends on is this environment's."""
    folder, (wheel,) = tmp_path_factory.mktemp("installed"), distributions.glob("*.whl")
    offline = ["--no-deps", "--no-index", "--quiet", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, str(wheel)], check=True)
    return folder


def quartet(installed: Path, folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "quartet", *arguments]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_both_are_built_with_the_version_and_the_licences(distributions):
    name = f"quartet_rl-{package.__version__}"
    assert {file.name for file in distributions.iterdir()} == {f"{name}.tar.gz", f"{name}-py3-none-any.whl"}
    with tarfile.open(distributions / f"{name}.tar.gz") as source:
        names = set(source.getnames())
    assert {f"{name}/{file}" for file in ("LICENSE", "README.md", "CITATION.cff", "Makefile")} <= names


def test_the_installed_wheel_trains_a_recipe_that_ships(installed, tmp_path):
    where = "import quartet; print(quartet.__file__)"
    environment = os.environ | {"PYTHONPATH": str(installed)}
    found = subprocess.check_output([sys.executable, "-c", where], cwd=tmp_path, env=environment, text=True)
    assert found.startswith(str(installed))
    assert package.__version__ in quartet(installed, tmp_path, "--version")
    few = ("max_train_steps", "groups_per_batch", "minibatches", "epochs")
    short = (*(f"--set=train.{setting}=1" for setting in few), "--set=evaluation.before_and_after=false")
    said = quartet(installed, tmp_path, "train", "locks_forks", *short, "--run-dir", "run", "--json")
    summary = json.loads(said.splitlines()[-1])
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (1, 0, 0)
