"""Every block of code in every page does what the page says. Its first run is shortened, except before a release."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blocks import ROOT, SHOWN, Block, blocks, pages, use

from tests.command import quartet

BLOCK_SECONDS = 600
"""Far more than a block takes: the machine may be busy."""
FIRST = ROOT / "docs" / "get-started.md"
FEWER = {"max_train_steps = 50": "max_train_steps = 4", "episodes_per_family = 64": "episodes_per_family = 8"}
"""Settings of the page's recipe, and those of the tests, which need no policy that has learned."""
FIRST_COMMAND = "quartet train mine.toml\n"
"""Block of Get started that runs in a shell, as a reader would run it."""
TRAINING = {f"docs/bring-your-own/{name}.md" for name in ("environment", "harness", "model")}
"""Pages whose blocks train: the campaigns run them. What they show has other tests, which `make test` runs."""
SHELL_SYNTAX = re.compile(r"[|&;<>$`*?\\]")
USED = [page for page in pages() if any(not b.slow and b.language not in SHOWN for b in blocks(page))]
PAGES = [
    pytest.param(page, marks=[pytest.mark.campaign] * (str(page.relative_to(ROOT)) in TRAINING))
    for page in USED
    if page != FIRST
]


@pytest.fixture(scope="session")
def first_run(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Folder of a reader of Get started, with the run that other pages inspect."""
    return made_once("first-run", follow_get_started)


def follow_get_started(folder: Path) -> None:
    clone(folder)
    for block in blocks(FIRST):
        if block.text == FIRST_COMMAND:
            use(block, folder, timeout_seconds=BLOCK_SECONDS)
        elif not block.slow:
            follow(block, folder)
        if block.title == "mine.toml":
            shorten(folder / block.title)


def follow(block: Block, folder: Path) -> None:
    """Do what a block says. If it needs no shell, its commands run in this process, without the second that a new one
    takes to start."""
    if commands := quartet_commands(block):
        for command in commands:
            ended = quartet(*command, folder=folder)
            assert ended.returncode == 0, f"{block}: {command} failed:\n{ended.stdout}\n{ended.stderr}"
    else:
        use(block, folder, timeout_seconds=BLOCK_SECONDS)


def shorten(recipe: Path) -> None:
    text = recipe.read_text()
    for setting, fewer in FEWER.items():
        assert setting in text
        text = text.replace(setting, fewer)
    recipe.write_text(text)


def clone(folder: Path) -> Path:
    """Make a folder look like the root of a fresh clone, in which nothing can be spoilt."""
    folder.mkdir(exist_ok=True)
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", "site", ".git"):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(2 * BLOCK_SECONDS)
def test_code_blocks_of_get_started_train_a_run(first_run: Path) -> None:
    assert (first_run / "runs" / "mine" / "summary.json").is_file()
    assert FIRST_COMMAND in [block.text for block in blocks(FIRST)]


@pytest.mark.slow
@pytest.mark.timeout(2 * BLOCK_SECONDS)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_of_a_page_run(page: Path, first_run: Path, tmp_path: Path) -> None:
    folder = clone(tmp_path)
    shutil.copy(first_run / "mine.toml", folder)
    shutil.copytree(first_run / "runs", folder / "runs", ignore=shutil.ignore_patterns("notifications"))
    for block in blocks(page):
        if not block.slow:
            follow(block, folder)


@pytest.mark.slow
def test_the_example_of_an_environment_passes_its_check_without_a_warning(tmp_path: Path) -> None:
    use(block_named("doors.py", ROOT / "docs" / "bring-your-own" / "environment.md"), tmp_path, timeout_seconds=60)
    ended = quartet("env", "check", "doors", "--json", folder=tmp_path)
    found = [finding for check in json.loads(ended.stdout)["checks"] for finding in check["findings"]]
    assert [finding for finding in found if finding["grade"] != "note"] == []


def block_named(title: str, page: Path) -> Block:
    return next(block for block in blocks(page) if block.title == title)


def quartet_commands(block: Block) -> list[list[str]]:
    """Return the arguments of each command if the block needs no shell."""
    if block.language != "bash" or block.serves:
        return []
    lines = [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line]
    if any(SHELL_SYNTAX.search(word) for line in commands for word in line):
        return []
    return [line[1:] for line in commands] if all(line[0] == "quartet" for line in commands) else []


def slow_blocks() -> Iterator[Block]:
    return (block for page in pages() for block in blocks(page) if block.slow)


def test_only_commands_are_left_to_the_release() -> None:
    """Python and recipes on a page are always tried."""
    assert all(block.language == "bash" for block in slow_blocks())
