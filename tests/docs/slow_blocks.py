"""Before a release (`make docs-slow`): pages with the blocks that take minutes, in a fresh clone of the last commit.

Not collected by `pytest` alone: together they install, train for a quarter of an hour and kill processes 200 times.
"""

import subprocess
from pathlib import Path

import pytest
from blocks import ROOT, blocks, pages, use

TIMEOUT_SECONDS = 3 * 3600
SLOW = [page for page in pages() if any(block.slow for block in blocks(page))]


@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
@pytest.mark.parametrize("page", SLOW, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_whole(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "quartet"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    first = [] if page.name == "get-started.md" else list(blocks(ROOT / "docs" / "get-started.md"))
    for block in [block for block in first if not block.slow] + list(blocks(page)):
        use(block, folder, timeout_seconds=TIMEOUT_SECONDS)
