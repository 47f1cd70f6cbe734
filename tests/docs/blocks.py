"""The blocks of code in a page, and how a reader would use them.

    bash      run, from the root of a clone
    python    run; with a title saved under that name instead
    toml      (a part of) a recipe: must be valid; with a title saved under that name as well
    json      must be valid
    others    only shown

A comment just above a block says what is special about it: `<!-- test: slow -->` leaves it to `make docs-slow`; with
`<!-- test: serves -->` it is a server, which prints its address, must answer, and is then ended.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from quartet.recipe.file import parse_recipe

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)(?: +title=\"(?P<title>[^\"]+)\")? *$")
SLOW, SERVES = "<!-- test: slow -->", "<!-- test: serves -->"
SHOWN = {"", "text", "mermaid"}
SMALLEST = {"name": "part", "model": {"path": "models/none"}, "env": {"name": "bandit"}}
"""What a recipe must set; a part of one is judged together with it."""


class Block(Struct, frozen=True, kw_only=True):
    page: Path
    line: int
    """Of its first line of code, from 1."""
    language: str
    title: str
    text: str
    slow: bool
    serves: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page of the repository, sorted."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True)
    return sorted(ROOT / name for name in listed.stdout.decode().split())


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page from top to bottom. Raises `ValueError` for a fence that is not understood."""
    lines = page.read_text().split("\n")
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if lines[number].lstrip().startswith("```") and opening is None:
            raise ValueError(f"{page}:{number + 1}: a fence that the tests do not understand: {lines[number]!r}")
        if opening is None:
            number += 1
            continue
        end = lines.index(opening["fence"], number + 1)
        yield Block(
            page=page,
            line=number + 2,
            language=opening["language"],
            title=opening["title"] or "",
            text="\n".join(lines[number + 1 : end]) + "\n",
            slow=lines[number - 1] == SLOW,
            serves=lines[number - 1] == SERVES,
        )
        number = end + 1


def use(block: Block, folder: Path, *, timeout_seconds: float) -> None:
    """Do with a block what a reader would do in `folder`. Raises `AssertionError` that names the block."""
    if block.title:
        (folder / block.title).write_text(block.text)
    match block.language:
        case "bash" if block.serves:
            _ask_server(["bash", "-c", f"exec {block.text}"], block, folder)
        case "bash":
            _run(["bash", "-e", "-o", "pipefail", "-c", block.text], block, folder, timeout_seconds)
        case "python" if not block.title:
            _run([sys.executable, "-c", block.text], block, folder, timeout_seconds)
        case "python":
            compile(block.text, block.title, "exec")
        case "toml":
            with pytest.MonkeyPatch.context() as patch:
                patch.syspath_prepend(folder)  # a recipe may name a part of a file that the page has shown
                parse_recipe(SMALLEST | tomllib.loads(block.text), str(block))
        case "json":
            json.loads(block.text)
        case language:
            assert language in SHOWN, f"{block}: nobody knows what to do with a block of {language!r}"


def _run(command: list[str], block: Block, folder: Path, timeout_seconds: float) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, (
        f"{block} ended with {done.returncode}:\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )


def _ask_server(command: list[str], block: Block, folder: Path) -> None:
    with subprocess.Popen(command, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address.startswith("http://"), f"{block} printed no address, but {address!r}"
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert answer.status == 200, f"{block} answered {answer.status}"
        finally:
            server.terminate()


def _environment(folder: Path) -> dict[str, str]:
    path = f"{folder}/.venv/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(folder)}
