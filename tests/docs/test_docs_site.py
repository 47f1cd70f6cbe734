"""The documentation site: built with warnings as errors, complete, and without a word to another host."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from blocks import ROOT

from quartet.config import Recipe

pytestmark = pytest.mark.slow
EXTERNAL = re.compile(
    r"""(?:<(?:script|img|iframe|source)[^>]+src=|<link[^>]+href=|url\()["']?(?:https?:)?//[^"')>]+"""
)


BROKEN = "broken.md"
TARGETS = ("no-such-page.md", "glossary.md#no-such-anchor", "../quartet/no_such_file.py")
"""Links of the page `BROKEN`, which is in the documentation of these tests only."""


@pytest.fixture(scope="session")
def built(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Folder of the site and of the build's `log`. Its documentation has one page more, with links that are broken."""
    return made_once("built", build)


def build(folder: Path) -> None:
    """Not with `-q`: MkDocs then counts no warnings."""
    docs = shutil.copytree(ROOT / "docs", folder / "docs")
    (docs / BROKEN).write_text("\n\n".join(["# Broken", *(f"[gone]({target})" for target in TARGETS)]))
    text = re.sub(r"^watch:.*", f"docs_dir: {docs}", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    text = text.replace("docs_dir: docs\n", "").replace("- tools/site", f"- {ROOT}/tools/site")
    (configuration := folder / "mkdocs.yml").write_text(text.replace("[.]", f"[{ROOT}]"))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "-d", folder / "site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (folder / "log").write_text(done.stderr)


@pytest.fixture
def site(built: Path) -> Path:
    """Return the folder of the whole site, which MkDocs writes before it refuses the broken links."""
    return built / "site"


def test_the_build_warns_of_broken_links_and_of_nothing_else(built: Path) -> None:
    log = (built / "log").read_text().splitlines()
    warnings = [line for line in log if line.startswith("WARNING")]
    for target in TARGETS:
        (warning,) = (line for line in warnings if f"'{target}'" in line)
        assert f"'{BROKEN}'" in warning
        warnings.remove(warning)
    assert len(warnings) == 1 and 'not included in the "nav"' in warnings[0], warnings
    assert [line for line in log if line.startswith("  - ")] == [f"  - {BROKEN}"]


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not (found := EXTERNAL.search(file.read_text())), f"{file.relative_to(site)} fetches {found[0]}"


def test_every_setting_is_explained(site: Path) -> None:
    page = (site / "reference" / "settings.html").read_text()
    for section, info in Recipe.model_fields.items():
        settings = getattr(info.annotation, "model_fields", {})
        for name in [f"{section}.{setting}" for setting in settings] or [section]:
            assert f'id="{name}"' in page, name


def test_every_command_is_explained(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text()
    for command in ("quartet train", "quartet ledger export"):
        assert f">{command}<" in page, command


def test_state_machines_are_drawn_without_a_script(site: Path) -> None:
    page = (site / "state-machines.html").read_text()
    assert page.count('<svg class="states"') == 3
    assert "stateDiagram" not in page
