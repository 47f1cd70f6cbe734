"""A folder of the package imports only folders below it: the order is the list of `docs/architecture.md`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "quartet"


def layers() -> dict[str, int]:
    """Return the height of each folder and file of the package: the list on the page, read from its end."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.split("## Layers", 1)[1].split("\n## ", 1)[0]
    rows = [
        re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in section.splitlines() if line.startswith("| `")
    ]
    return {name: height for height, row in enumerate(reversed(rows)) for name in row}


def imported(file: Path) -> Iterator[str]:
    """Yield the names under `quartet` that a file imports anywhere, also in functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward(file: Path, heights: dict[str, int]) -> list[str]:
    """Return the imports of a file that name a folder of its own height or above."""
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = [name.split(".")[1] for name in imported(file) if name.startswith("quartet.")]
    return [name for name in names if name != own and name in heights and heights[name] >= heights[own]]


def test_every_folder_and_file_of_the_package_has_a_layer():
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__"} == set(layers())


@pytest.mark.parametrize("folder", sorted(layers()))
def test_imports_name_folders_below_only(folder):
    heights = layers()
    place = PACKAGE / folder
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    found = {str(file.relative_to(ROOT)): names for file in files if (names := upward(file, heights))}
    assert not found


def test_an_import_that_runs_upwards_is_found():
    assert "ledger" in upward(PACKAGE / "train" / "trainer.py", layers() | {"ledger": 99})
